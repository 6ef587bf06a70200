"""Where episodes end when nobody says so. It looks at labels and inputs only, never at the network."""

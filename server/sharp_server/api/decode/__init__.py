"""From bytes of the wire to arrays and labels: tensors, encoded images, labels.

Everything that comes from outside is checked here before anybody else sees it.
It must never trust a size that was announced, and never look at a learner.
"""

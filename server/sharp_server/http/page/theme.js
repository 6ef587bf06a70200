// Before anything is painted: the theme that was chosen here, or else the system's.
"use strict";
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("sharp-theme"); } catch { /* storage is switched off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();

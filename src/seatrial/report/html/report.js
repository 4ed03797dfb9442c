"use strict";
// Only to filter: everything is on the page without it.
(() => {
  const bar = document.getElementById("filter");
  const text = document.getElementById("find");
  const shown = document.getElementById("shown");
  const cells = Array.from(document.querySelectorAll("details.cell"));
  const chosen = new Set();
  bar.hidden = false;
  const apply = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let number = 0;
    for (const cell of cells) {
      const kinds = cell.dataset.kinds.split(" ");
      const found = words.every((word) => cell.dataset.find.includes(word));
      const keep = found && (chosen.size === 0 || kinds.some((kind) => chosen.has(kind)));
      cell.hidden = !keep;
      number += keep ? 1 : 0;
    }
    shown.textContent = `${number} of ${cells.length} shown`;
  };
  for (const button of bar.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      const kind = button.dataset.kind;
      if (!chosen.delete(kind)) chosen.add(kind);
      button.setAttribute("aria-pressed", String(chosen.has(kind)));
      apply();
    });
  }
  text.addEventListener("input", apply);
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const cell = target && target.closest("details.cell");
    if (cell) { cell.hidden = false; cell.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  reveal();
  apply();
})();

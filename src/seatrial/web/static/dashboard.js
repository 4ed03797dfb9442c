"use strict";
charts.enhance(document);
document.addEventListener("keydown", (event) => {
  const find = document.querySelector(".search input");
  if (event.key !== "/" || !find || event.target.matches("input, select, textarea")) return;
  event.preventDefault();
  find.focus();
});
for (const one of document.querySelectorAll(".filters select")) one.addEventListener("change", () => one.form.submit());
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "copied";
  });
}
// A click on a mark opens that cell in that run.
document.addEventListener("click", (event) => {
  const mark = event.target.closest("table.strips tbody .strip i");
  if (!mark) return;
  const columns = mark.closest("table").querySelectorAll("thead .strip a");
  const to = columns[[...mark.parentElement.children].indexOf(mark)];
  if (to && mark.textContent) location.href = `${to.href}#cell/${mark.closest("tr").dataset.hash}`;
});

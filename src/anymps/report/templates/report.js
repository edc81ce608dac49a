// Sorting by column heads, and folded parts opened for print. The page says all it has to say without this.
"use strict";
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.querySelectorAll("th[data-sort]")];
  const value = (row, column, kind) => {
    const cell = row.cells[column];
    return kind === "number" ? Number(cell.dataset.value) : cell.textContent.trim().toLowerCase();
  };
  for (const [column, head] of heads.entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const kind = head.dataset.sort;
      const sorted = head.getAttribute("aria-sort");
      const order = sorted ? (sorted === "ascending" ? "descending" : "ascending") : kind === "number" ? "descending" : "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...table.tBodies[0].rows];
      const keys = new Map(rows.map((row) => [row, value(row, column, kind)]));
      rows.sort((a, b) => sign * (keys.get(a) < keys.get(b) ? -1 : keys.get(a) > keys.get(b) ? 1 : 0));
      table.tBodies[0].append(...rows);
    });
  }
}
const opened = [];
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details:not([open])")) {
    part.open = true;
    opened.push(part);
  }
});
addEventListener("afterprint", () => {
  for (const part of opened.splice(0)) part.open = false;
});

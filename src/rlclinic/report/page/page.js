// What the page does with a script: copy a change, choose light or dark, unfold for paper. Nothing is kept or sent.
(() => {
  "use strict";
  const root = document.documentElement;
  const told = document.querySelector(".told");
  const say = (words) => { told.textContent = ""; requestAnimationFrame(() => { told.textContent = words; }); };

  const select = (element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  };
  const copy = async (button) => {
    const element = document.getElementById(button.dataset.copy);
    const label = button.dataset.label || (button.dataset.label = button.textContent);
    let done = false;
    try {
      await navigator.clipboard.writeText(element.textContent);
      done = true;
    } catch {
      select(element);
      try { done = document.execCommand("copy"); } catch { done = false; }
    }
    button.textContent = done ? "Copied" : "Selected";
    say(done ? "copied" : "selected: press Ctrl+C or Cmd+C to copy");
    clearTimeout(Number(button.dataset.timer));
    button.dataset.timer = String(setTimeout(() => { button.textContent = label; }, 2000));
  };
  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  }

  const theme = document.querySelector("button.theme");
  const wished = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : wished.matches);
  const named = () => { theme.textContent = dark() ? "Light" : "Dark"; theme.setAttribute("aria-label", dark() ? "Light colours" : "Dark colours"); };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    named();
    dispatchEvent(new Event("themechange"));
  });
  wished.addEventListener("change", named);
  named();

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of opened) one.open = false;
    opened = [];
  });
  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();
})();

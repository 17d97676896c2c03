"use strict";
// Shows samples. All that comes from models and data is text for textContent: nothing here makes markup of it.
(() => {
  const PAGE_ROWS = 100;
  const MAX_CHUNKS_HELD = 8;
  const MAX_VALUES = 6; // of an opened sample, before the others are folded
  const byId = (id) => document.getElementById(id);
  const make = (tag, text = "", className = "") => {
    const element = document.createElement(tag);
    if (text !== "") element.textContent = text;
    if (className) element.className = className;
    return element;
  };
  const counted = (number) => number.toLocaleString("en-US");
  const shortNumber = (value) =>
    String(Number.isInteger(value) ? value : Math.abs(value) < 1e4 ? Number(value.toPrecision(4)) : Number(value.toFixed(2)));

  async function unpacked(element) {
    const text = atob(element.textContent.trim());
    const bytes = new Uint8Array(text.length);
    for (let place = 0; place < text.length; place++) bytes[place] = text.charCodeAt(place);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).json();
  }

  const names = JSON.parse(atob(byId("samples").dataset.names));
  const FILTERS = { suite: names.suites, model: names.models, category: names.categories, status: names.statuses };
  const SHOWN = { ...FILTERS, model: names.short_models }; // the address has a model's whole name
  const hasChanges = { value: false };
  let columns = {};
  let num = 0;
  let haystack = [];
  let ranks = null; // of a sample whose texts are kept: how many such stand before it
  let kept = null; // places of the samples whose texts are kept
  let own = null; // which categories and metrics the samples of each suite have
  let standing = new Uint32Array(0); // all places, in the order in which they stand if nothing sorts them
  let partners = null; // places of the samples of a suite and id, where several models answered
  let hits = null; // what the last search through all texts found: {words, found}
  let isStopped = false;
  let shown = new Uint32Array(0);
  const sorted = new Map();
  const chunks = new Map();
  const state = fresh();

  function fresh() {
    return {
      words: "", isInTexts: false, suite: -1, model: -1, category: -1, status: -1, change: "", metric: 0, least: null,
      most: null, sort: "", isFalling: false, page: 0, open: -1,
    };
  }

  // Texts

  function loaded() {
    if (document.readyState !== "loading") return Promise.resolve();
    return new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
  }

  async function chunk(number) {
    if (!chunks.has(number)) {
      if (!byId(`chunk-${number}`)) await loaded();
      if (chunks.size >= MAX_CHUNKS_HELD) chunks.delete(chunks.keys().next().value);
      const promise = unpacked(byId(`chunk-${number}`));
      promise.catch(() => chunks.delete(number));
      chunks.set(number, promise);
    }
    return chunks.get(number);
  }

  async function texts(place) {
    if (!columns.kept[place]) return null;
    const rank = ranks[place];
    return (await chunk(Math.floor(rank / names.chunk)))[rank % names.chunk];
  }

  const searchedWords = () => state.words.trim().toLowerCase();

  async function searchTexts() {
    const words = searchedWords();
    if (!words) return;
    const search = { words, found: new Uint8Array(num), state: "searching", numDamaged: 0 };
    hits = search;
    state.isInTexts = true;
    remember();
    isStopped = false;
    byId("progress").hidden = byId("stop").hidden = false;
    byId("progress").value = 0;
    byId("count").setAttribute("aria-live", "off"); // it changes many times a second
    const total = Math.ceil(kept.length / names.chunk);
    let wait = performance.now();
    for (let number = 0; number < total && !isStopped && hits === search; number++) {
      const records = await chunk(number).catch(() => null);
      if (!records) search.numDamaged += 1;
      (records || []).forEach((record, rank) => {
        const has = record.texts.some(([, text]) => text.toLowerCase().includes(words))
          || (record.options || []).some(([text]) => text.toLowerCase().includes(words));
        if (has) search.found[kept[number * names.chunk + rank]] = 1;
      });
      byId("progress").value = (number + 1) / total;
      if (performance.now() - wait > 100) {
        show();
        await new Promise((resolve) => setTimeout(resolve));
        wait = performance.now();
      }
    }
    if (hits !== search) return; // there are other words now, whose search has the controls
    search.state = isStopped ? "stopped" : "done";
    endSearch();
    show();
  }

  function endSearch() {
    byId("progress").hidden = byId("stop").hidden = true;
    byId("count").setAttribute("aria-live", "polite");
  }

  function forgetSearch() {
    hits = null;
    state.isInTexts = false;
    endSearch();
  }

  function searchNote() {
    if (!state.isInTexts || !hits) return "";
    if (hits.state === "searching") return " so far, while texts are searched";
    if (hits.state === "stopped") return ", as far as texts were searched before the search was stopped";
    if (hits.numDamaged) return `, without ${counted(hits.numDamaged * names.chunk)} samples whose texts cannot be read: the file may be damaged`;
    return kept.length < num ? `, without the texts of ${counted(num - kept.length)} samples that are not in this file` : "";
  }

  // Which samples, in which order

  const KEYS = {
    // sample 9 comes before sample 10
    id: (place) => columns.id[place].replace(/\d+/g, (digits) => digits.padStart(16, "0")),
    suite: (place) => names.suites[columns.suite[place]],
    model: (place) => names.short_models[columns.model[place]],
    category: (place) => names.categories[columns.category[place]],
    status: (place) => columns.status[place],
    change: (place) => (columns.now[place] === null ? null : columns.now[place] - columns.before[place]),
    answer: (place) => columns.answer[place],
    snippet: (place) => columns.snippet[place],
  };

  function order() {
    const name = state.sort === "metric" ? `metric${state.metric}` : state.sort;
    if (!name) return standing;
    if (!sorted.has(name)) {
      const key = KEYS[name] || ((place) => columns[name][place]);
      const keys = Array.from({ length: num }, (_, place) => key(place));
      const places = Uint32Array.from(keys, (_, place) => place);
      // what has no value comes last, whichever way
      const compare = (a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : a - b);
      const having = places.filter((place) => keys[place] !== null).sort(compare);
      sorted.set(name, { having, others: places.filter((place) => keys[place] === null) });
    }
    const { having, others } = sorted.get(name);
    const found = new Uint32Array(num);
    found.set(having);
    if (state.isFalling) found.subarray(0, having.length).reverse();
    found.set(others, having.length);
    return found;
  }

  // What changed comes first, then what could not be scored, then what is wrong.
  function standingPlaces() {
    const groups = [[], [], [], [], []];
    for (let place = 0; place < num; place++) {
      const change = names.changes[columns.change[place]];
      const changed = ["worse", "better"].indexOf(change);
      groups[changed >= 0 ? changed : Math.min(2 + columns.status[place], 4)].push(place);
    }
    return Uint32Array.from(groups.flat());
  }

  function filtered() {
    const places = order();
    const found = new Uint32Array(num);
    const words = searchedWords();
    const isHit = state.isInTexts && hits && hits.words === words ? hits.found : null;
    const values = columns[`metric${state.metric}`];
    const change = state.change === "changed" ? -1 : state.change === "" ? -2 : Number(state.change);
    let count = 0;
    for (let rank = 0; rank < num; rank++) {
      const place = places[rank];
      if (state.suite >= 0 && columns.suite[place] !== state.suite) continue;
      if (state.model >= 0 && columns.model[place] !== state.model) continue;
      if (state.category >= 0 && columns.category[place] !== state.category) continue;
      if (state.status >= 0 && columns.status[place] !== state.status) continue;
      if (change === -1 ? columns.change[place] !== 1 && columns.change[place] !== 2
        : change >= 0 && columns.change[place] !== change) continue;
      if (values && (state.least !== null || state.most !== null)) {
        const value = values[place];
        if (value === null || (state.least !== null && value < state.least)) continue;
        if (state.most !== null && value > state.most) continue;
      }
      if (words && !haystack[place].includes(words) && !(isHit && isHit[place])) continue;
      found[count++] = place;
    }
    return found.subarray(0, count);
  }

  // The list

  function headings() {
    const found = [["id", "Sample", "left"]];
    for (const name of ["suite", "model", "category"]) {
      if (FILTERS[name].length > 1) found.push([name, name[0].toUpperCase() + name.slice(1), "left"]);
    }
    found.push(["status", "Status", "left"]);
    if (hasChanges.value) found.push(["change", "Change", "left"]);
    if (names.metrics.length) found.push(["metric", names.metrics[state.metric], "right"]);
    found.push(["answer", "Answer", "left"], ["snippet", "Question", "left"]);
    return found;
  }

  function drawHead(found) {
    const row = make("tr");
    for (const [name, text, align] of found) {
      const cell = make("th", "", `${align} ${name}`);
      cell.scope = "col";
      const button = make("button", text);
      button.type = "button";
      button.dataset.sort = name;
      if (state.sort === name) {
        cell.setAttribute("aria-sort", state.isFalling ? "descending" : "ascending");
        button.textContent += state.isFalling ? " ▼" : " ▲";
      }
      cell.append(button);
      row.append(cell);
    }
    byId("rows").tHead.replaceChildren(row);
  }

  function drawRow(place, found) {
    const row = make("tr");
    row.dataset.place = place;
    if (place === state.open) row.setAttribute("aria-current", "true");
    for (const [name, , align] of found) {
      const cell = make("td", "", `${align} ${name}`);
      if (name === "id") {
        const button = make("button", columns.id[place] || "(no id)");
        button.type = "button";
        cell.append(button);
      } else if (name === "status") {
        cell.textContent = names.statuses[columns.status[place]];
        cell.classList.add(cell.textContent);
      } else if (name === "change") {
        drawChange(cell, place);
      } else if (name === "metric") {
        const value = columns[`metric${state.metric}`][place];
        cell.textContent = value === null ? "" : shortNumber(value);
      } else if (name === "answer" && columns.missing[place]) {
        cell.append(make("span", missingText(place), "missing"));
      } else if (SHOWN[name]) {
        cell.textContent = SHOWN[name][columns[name][place]];
      } else {
        cell.textContent = columns[name][place];
      }
      row.append(cell);
    }
    return row;
  }

  // Why a sample has no answer; of one that could not be scored, with the reason.
  function missingText(place) {
    if (!columns.missing[place]) return "";
    return [names.missing[columns.missing[place]], columns.answer[place]].filter(Boolean).join(": ");
  }

  function drawChange(cell, place) {
    const change = names.changes[columns.change[place]];
    if (!change || change === "same") {
      cell.textContent = change;
      return;
    }
    cell.append(make("span", change, change));
    cell.append(make("span", ` ${shortNumber(columns.before[place])} → ${shortNumber(columns.now[place])}`, "before"));
  }

  function show() {
    shown = filtered();
    const last = Math.max(0, Math.ceil(shown.length / PAGE_ROWS) - 1);
    state.page = Math.min(state.page, last);
    drawPage();
  }

  function drawPage() {
    const start = state.page * PAGE_ROWS;
    const places = shown.subarray(start, start + PAGE_ROWS);
    const found = headings();
    const focused = byId("rows").contains(document.activeElement) ? document.activeElement : null;
    const { place } = focused?.closest("tr[data-place]")?.dataset || {};
    const sort = focused?.dataset.sort;
    drawHead(found);
    byId("rows").tBodies[0].replaceChildren(...Array.from(places, (place) => drawRow(place, found)));
    const of = shown.length === num ? "" : ` of ${counted(num)}`;
    const range = shown.length > PAGE_ROWS ? `, ${counted(start + 1)} to ${counted(start + places.length)} below` : "";
    const text = `${counted(shown.length)}${of} sample${num === 1 ? "" : "s"}${range}${searchNote()}`;
    if (byId("count").textContent !== text) byId("count").textContent = text;
    byId("previous").disabled = state.page === 0;
    byId("next").disabled = start + PAGE_ROWS >= shown.length;
    byId("previous").hidden = byId("next").hidden = shown.length <= PAGE_ROWS;
    mark();
    const again = sort ? `th button[data-sort="${sort}"]` : place === undefined ? null : `tr[data-place="${place}"] button`;
    if (again) byId("rows").querySelector(again)?.focus({ preventScroll: true });
  }

  // One sample, with those of other models beside it

  function placesBeside(place) {
    if (names.models.length < 2) return [place];
    if (!partners) {
      partners = new Map();
      for (let other = 0; other < num; other++) {
        const key = `${columns.suite[other]} ${columns.id[other]}`;
        if (!partners.has(key)) partners.set(key, []);
        partners.get(key).push(other);
      }
    }
    return partners.get(`${columns.suite[place]} ${columns.id[place]}`);
  }

  async function open(place, { focus = false, isNew = state.open < 0 && place >= 0 } = {}) {
    state.open = place;
    remember({ isNew });
    mark();
    if (place < 0) {
      byId("sample").hidden = true;
      byId("browser").classList.remove("open");
      return;
    }
    const places = placesBeside(place);
    let problem = null;
    const unread = (error) => { problem = error; return { texts: [], values: [], took: [], node: "" }; };
    const found = await Promise.all(places.map((other) => texts(other).catch(unread)));
    tell("");
    if (state.open !== place) return; // another one was opened since
    const focused = byId("sample").contains(document.activeElement) ? document.activeElement : null;
    drawSample(place, places, found);
    mark();
    if (problem) tell(`The texts of this sample cannot be read (${problem.message}): the file may be damaged.`);
    byId("sample").hidden = false;
    byId("browser").classList.add("open");
    byId("browser").classList.toggle("several", places.length > 1);
    byId("sample").scrollTop = 0;
    // the question stands at a prompt's end, after its examples
    for (const block of byId("sample").querySelectorAll('[data-field="prompt"]')) block.scrollTop = block.scrollHeight;
    if (focus || focused) {
      const again = focused?.id ? byId(focused.id) : null; // the button that led here
      (again && !again.disabled ? again : byId("sample")).focus({ preventScroll: true });
    }
    const row = byId("rows").querySelector('tr[aria-current="true"]');
    if (row) row.scrollIntoView({ block: "nearest" });
    const { top } = byId("browser").getBoundingClientRect();
    if (top < 0 || top > window.innerHeight / 4) byId("browser").scrollIntoView({ block: "start" });
  }

  function mark() {
    if (byId("close")) {
      byId("sample-previous").disabled = rankOf(-1) < 0;
      byId("sample-next").disabled = rankOf(1) < 0;
    }
    for (const row of byId("rows").tBodies[0].rows) {
      if (Number(row.dataset.place) === state.open) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }

  function drawSample(place, places, found) {
    const article = byId("sample");
    const top = make("div", "", "top");
    const title = make("h3", columns.id[place] || "(no id)");
    const buttons = make("span", "", "buttons");
    for (const [id, text, act] of [
      ["sample-previous", "Previous", () => step(-1)], ["sample-next", "Next", () => step(1)], ["close", "Close", closeSample],
    ]) {
      const button = make("button", text);
      button.id = id;
      button.type = "button";
      button.addEventListener("click", () => act());
      buttons.append(button);
    }
    top.append(title, buttons);
    const where = [names.suites[columns.suite[place]], names.categories[columns.category[place]]].filter(Boolean);
    article.replaceChildren(top, make("p", where.join(", "), "note"));
    const common = found.length > 1 && found.every(Boolean) ? commonTexts(found) : [];
    for (const [name, text] of common) drawText(article, name, text);
    const models = make("div", "", "models");
    const hasChange = places.some((other) => columns.change[other]);
    places.forEach((other, number) => {
      models.append(drawModel(other, found[number], common, { isNamed: places.length > 1, hasChange }));
    });
    article.append(models);
  }

  function commonTexts(found) {
    const same = ([name, text]) => found.every((one) => one.texts.some(([n, t]) => n === name && t === text));
    return found[0].texts.filter((pair) => (isAsked(pair[0]) || pair[0] === "expected") && same(pair));
  }

  function isAsked(name) {
    return name === "question" || name === "prompt" || / message [0-9]+ of [0-9]+$/.test(name);
  }

  function drawModel(place, found, common, { isNamed, hasChange }) {
    const part = make("div", "", "model");
    if (isNamed) part.append(make("h3", names.short_models[columns.model[place]] || "(no model)"));
    const status = names.statuses[columns.status[place]];
    part.append(make("p", [status, missingText(place)].filter(Boolean).join(": "), `status ${status}`));
    if (hasChange) {
      const line = make("p", "", "change"); // empty beside another's, so that what follows stands side by side
      drawChange(line, place);
      part.append(line);
    }
    if (found && !found.texts.length && !found.options) {
      part.append(make("p", "The report was made without the texts of this sample (--llm-report-records).", "note"));
    }
    if (!found) {
      part.append(make("p", "The texts of this sample are left out of this file; the JSON report has them.", "note"));
      return part;
    }
    const isCommon = ([name]) => common.some(([other]) => other === name);
    const rest = found.texts.filter((pair) => !isCommon(pair));
    const asked = rest.filter(([name]) => isAsked(name));
    for (const [name, text] of asked) drawText(part, name, text);
    if (found.options) drawOptions(part, found.options);
    for (const pair of rest) if (!asked.includes(pair)) drawText(part, pair[0], pair[1]);
    drawValues(part, "scores", found.values);
    drawValues(part, "took", found.took);
    drawText(part, "test", found.node);
    return part;
  }

  function drawText(parent, name, text) {
    const block = make("pre");
    block.tabIndex = 0;
    block.setAttribute("aria-label", name);
    block.setAttribute("role", "region");
    block.dataset.field = name;
    block.className = name.match(/^(user|reply|assistant), (?:turn|message)/)?.[1] || "";
    const words = searchedWords();
    const lower = text.toLowerCase();
    let start = 0;
    if (words && lower.length === text.length) {
      for (let at = lower.indexOf(words); at >= 0 && start < 1e6; at = lower.indexOf(words, start)) {
        block.append(text.slice(start, at), make("mark", text.slice(at, at + words.length)));
        start = at + words.length;
      }
    }
    block.append(text.slice(start));
    parent.append(make("h4", name), block);
  }

  function drawOptions(parent, options) {
    const table = make("table");
    table.dataset.field = "options";
    for (const [text, label, probability, marks] of options) {
      const row = make("tr");
      row.append(make("td", label || ""), make("td", text), make("td", probability === null ? "" : probability.toFixed(3), "right"));
      const bar = make("td");
      if (probability !== null) {
        const meter = make("meter");
        meter.value = probability;
        meter.setAttribute("aria-label", `probability of ${label || text}`);
        bar.append(meter);
      }
      row.append(bar, make("td", marks));
      table.append(row);
    }
    parent.append(make("h4", "options"), table);
  }

  function drawValues(parent, name, values) {
    if (!values.length) return;
    const rank = ([key]) => (names.metrics.includes(key) ? names.metrics.indexOf(key) : names.metrics.length);
    const ordered = [...values].sort((a, b) => rank(a) - rank(b));
    const first = ordered.length > MAX_VALUES + 2 ? ordered.slice(0, MAX_VALUES) : ordered;
    parent.append(make("h4", name), drawRows(name, first));
    if (first.length < ordered.length) {
      const rest = make("details");
      rest.append(make("summary", `${ordered.length - first.length} more`), drawRows(name, ordered.slice(first.length)));
      parent.append(rest);
    }
  }

  function drawRows(name, values) {
    const table = make("table");
    table.dataset.field = name;
    for (const [key, value] of values) {
      const row = make("tr");
      row.append(make("td", key), make("td", value === null ? "no number" : shortNumber(value), "right"));
      table.append(row);
    }
    return table;
  }

  function closeSample() {
    const place = state.open;
    open(-1);
    if (isPushed) {
      isPushed = false;
      isClosing = true;
      history.back(); // so that the next Back does not lead to the list again
    }
    const button = byId("rows").querySelector(`tr[data-place="${place}"] button`);
    if (button) button.focus();
  }

  // Where the next or the previous sample stands in the list, -1 where there is none.
  function rankOf(by) {
    const at = shown.indexOf(state.open);
    const rank = at < 0 ? (by > 0 ? state.page * PAGE_ROWS : -1) : at + by;
    return rank < shown.length ? rank : -1;
  }

  function step(by) {
    const rank = rankOf(by);
    if (rank < 0) return;
    const page = Math.floor(rank / PAGE_ROWS);
    const isNew = state.open < 0;
    state.open = shown[rank];
    if (page !== state.page) {
      state.page = page;
      drawPage();
    }
    open(shown[rank], { isNew }).catch(failed);
  }

  // The address

  let waiting = 0;
  let isPushed = false; // the last entry of the history is that of the opened sample
  let isClosing = false; // that entry is being left
  function remember({ isNew = false } = {}) {
    if (isNew) {
      if (waiting) write(address({ withSample: false }));
      return write(address(), "pushState"); // the button Back leads to the list
    }
    if (!waiting) waiting = setTimeout(() => write(), 150); // browsers refuse what comes too often
  }

  function write(found = address(), how = "replaceState") {
    clearTimeout(waiting);
    waiting = 0;
    if (isClosing) return;
    if (how === "pushState") isPushed = true;
    if (found || location.hash.includes("=")) history[how](null, "", found ? `#${found}` : "#samples");
  }

  function address({ withSample = true } = {}) {
    const found = new URLSearchParams();
    if (state.words) found.set("q", state.words);
    if (state.words && state.isInTexts) found.set("texts", "1");
    for (const name of Object.keys(FILTERS)) if (state[name] >= 0) found.set(name, FILTERS[name][state[name]]);
    if (state.change) found.set("change", state.change === "changed" ? "changed" : names.changes[Number(state.change)]);
    if (state.metric) found.set("metric", names.metrics[state.metric]);
    if (state.least !== null) found.set("least", state.least);
    if (state.most !== null) found.set("most", state.most);
    if (state.sort) found.set("sort", (state.isFalling ? "-" : "") + state.sort);
    if (state.page) found.set("page", state.page + 1);
    if (withSample && state.open >= 0) {
      found.set("sample", columns.id[state.open]);
      found.set("of", names.suites[columns.suite[state.open]]);
      if (names.models.length > 1) found.set("by", names.models[columns.model[state.open]]);
    }
    return found.toString();
  }

  function readAddress(hash = location.hash, { focus = false } = {}) {
    const text = hash.slice(1);
    if (!text.includes("=")) return false;
    clearTimeout(waiting);
    waiting = 0;
    const given = new URLSearchParams(text);
    const searched = hits?.state === "done" ? hits : null;
    Object.assign(state, fresh());
    forgetSearch();
    const unknown = [];
    const placeOf = (known, key, what) => {
      const place = given.has(key) ? known.indexOf(given.get(key)) : -1;
      if (given.has(key) && place < 0) unknown.push(`There is no ${what} ${given.get(key)} here.`);
      return place;
    };
    state.words = given.get("q") || "";
    for (const name of Object.keys(FILTERS)) state[name] = placeOf(FILTERS[name], name, name);
    const change = given.get("change");
    state.change = change === "changed" ? change : String(Math.max(0, names.changes.indexOf(change)) || "");
    state.metric = Math.max(0, names.metrics.indexOf(given.get("metric")));
    state.least = numberOf(given.get("least"));
    state.most = numberOf(given.get("most"));
    const sort = given.get("sort") || "";
    const name = sort.replace(/^-/, "");
    if (headings().some(([known]) => known === name)) {
      state.sort = name;
      state.isFalling = sort.startsWith("-");
    }
    state.page = Math.max(0, (Number.parseInt(given.get("page"), 10) || 1) - 1);
    let opened = -1;
    if (given.has("sample")) {
      const suite = placeOf(names.suites, "of", "suite");
      const model = placeOf(names.models, "by", "model");
      const fits = (id, place) => id === given.get("sample") && (!given.has("of") || columns.suite[place] === suite)
        && (!given.has("by") || columns.model[place] === model);
      opened = columns.id.findIndex(fits);
      if (opened < 0) unknown.push(`There is no sample ${given.get("sample")} here.`);
    }
    state.open = opened;
    fill();
    const page = state.page;
    const locate = () => {
      state.page = page;
      show();
      const rank = state.open < 0 ? -1 : shown.indexOf(state.open);
      if (rank >= 0) {
        state.page = Math.floor(rank / PAGE_ROWS);
        drawPage();
      }
      mark();
    };
    locate();
    if (given.get("texts") && searched?.words === searchedWords()) {
      [hits, state.isInTexts] = [searched, true];
      locate();
    } else if (given.get("texts") && state.words) {
      searchTexts().then(locate).catch(failed);
    }
    tell(rangeNote());
    open(state.open, { focus }).then(() => { if (unknown.length) tell(unknown.join(" ")); }).catch(failed);
    return true;
  }

  function follow(hash) {
    write(); // what is shown now, which Back leads to
    history.pushState(null, "", hash);
    isPushed = false;
    readAddress(hash, { focus: true });
    goTo(byId("samples"));
  }

  function goTo(section) {
    section.scrollIntoView();
    section.tabIndex = -1;
    section.focus({ preventScroll: true });
  }

  function rangeNote() {
    const isEmpty = state.least !== null && state.most !== null && state.least > state.most;
    return isEmpty ? "No number lies in this range: its beginning is above its end." : "";
  }

  const numberOf = (text) => (text === null || text.trim() === "" || Number.isNaN(Number(text)) ? null : Number(text));

  function tell(text) {
    byId("message").textContent = text;
    byId("message").hidden = !text;
  }

  // Controls

  function fill() {
    offerCategories();
    byId("search").value = state.words;
    for (const name of Object.keys(FILTERS)) byId(`filter-${name}`).value = state[name] < 0 ? "" : String(state[name]);
    byId("filter-change").value = state.change;
    byId("filter-change").closest("label").hidden = !hasChanges.value && !state.change;
    if (names.metrics.length) byId("metric").value = String(state.metric);
    byId("least").value = state.least === null ? "" : state.least;
    byId("most").value = state.most === null ? "" : state.most;
  }

  function ofSuites() {
    if (!own) {
      own = names.suites.map(() => ({ categories: new Set(), metrics: new Set() }));
      for (let place = 0; place < num; place++) own[columns.suite[place]].categories.add(columns.category[place]);
      names.metrics.forEach((_, metric) => {
        columns[`metric${metric}`].forEach((value, place) => {
          if (value !== null) own[columns.suite[place]].metrics.add(metric);
        });
      });
    }
    return own;
  }

  function offerCategories() {
    const offered = state.suite < 0 ? null : ofSuites()[state.suite].categories;
    for (const option of byId("filter-category").options) {
      option.hidden = option.disabled = Boolean(offered) && option.value !== "" && !offered.has(Number(option.value));
    }
  }

  // Of the suite that was chosen: no category of another one, and a metric that it has.
  function chooseSuite() {
    if (state.suite >= 0) {
      const { categories, metrics } = ofSuites()[state.suite];
      if (state.category >= 0 && !categories.has(state.category)) state.category = -1;
      if (metrics.size && !metrics.has(state.metric)) {
        state.metric = Math.min(...metrics);
        state.least = state.most = null;
      }
    }
    fill();
  }

  function changed() {
    tell(rangeNote());
    state.page = 0;
    show();
    remember();
  }

  function listen() {
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    byId("search").addEventListener("input", (event) => {
      state.words = event.target.value;
      forgetSearch();
      changed();
    });
    byId("search").addEventListener("keydown", (event) => {
      if (event.key === "Enter") searchTexts().catch(failed);
    });
    byId("search-texts").addEventListener("click", () => searchTexts().catch(failed));
    byId("stop").addEventListener("click", () => { isStopped = true; });
    for (const name of Object.keys(FILTERS)) {
      byId(`filter-${name}`).addEventListener("change", (event) => {
        state[name] = event.target.value === "" ? -1 : Number(event.target.value);
        if (name === "suite") chooseSuite();
        changed();
      });
    }
    byId("filter-change").addEventListener("change", (event) => { state.change = event.target.value; changed(); });
    byId("metric").addEventListener("change", (event) => { state.metric = Number(event.target.value); changed(); });
    byId("least").addEventListener("input", (event) => { state.least = numberOf(event.target.value); changed(); });
    byId("most").addEventListener("input", (event) => { state.most = numberOf(event.target.value); changed(); });
    byId("reset").addEventListener("click", () => { forgetState(); changed(); });
    byId("previous").addEventListener("click", () => turn(-1));
    byId("next").addEventListener("click", () => turn(1));
    byId("rows").addEventListener("click", (event) => {
      const button = event.target.closest("button[data-sort]");
      if (button) return sortBy(button.dataset.sort);
      const row = event.target.closest("tr[data-place]");
      if (row) open(Number(row.dataset.place), { focus: Boolean(event.target.closest("button")) }).catch(failed);
    });
    document.addEventListener("keydown", onKey);
    for (const link of document.querySelectorAll('a[href^="#"]')) {
      link.addEventListener("click", (event) => {
        if (link.hash.includes("=")) {
          event.preventDefault();
          follow(link.hash);
        }
        if (!address() || event.defaultPrevented) return;
        event.preventDefault(); // the address names what is shown of the samples
        goTo(byId(link.hash.slice(1)));
      });
    }
    window.addEventListener("hashchange", (event) => {
      isPushed = false;
      if (isClosing) {
        isClosing = false;
        write();
        return;
      }
      if (readAddress(new URL(event.newURL).hash) || !address()) return;
      forgetState(); // back to before a sample was opened
      changed();
    });
  }

  function forgetState() {
    open(-1);
    Object.assign(state, fresh());
    forgetSearch();
    fill();
  }

  function turn(by) {
    state.page += by;
    drawPage();
    remember();
    byId("count").scrollIntoView({ block: "nearest" });
  }

  function sortBy(name) {
    // rising, falling, as they stand
    if (state.sort !== name) [state.sort, state.isFalling] = [name, false];
    else if (!state.isFalling) state.isFalling = true;
    else [state.sort, state.isFalling] = ["", false];
    changed();
    const button = byId("rows").tHead.querySelector(`button[data-sort="${name}"]`);
    if (button) button.focus();
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const isField = event.target.matches("input, select, textarea");
    if (event.key === "Escape") {
      if (event.target === byId("search")) event.preventDefault(); // some browsers would empty it: the filter stays
      if (isField) event.target.blur();
      else if (state.open >= 0) closeSample();
      return;
    }
    if (isField || !byId("use-keys").checked) return;
    if (event.key === "/") {
      event.preventDefault();
      byId("search").focus();
      byId("search").scrollIntoView({ block: "nearest" });
    } else if (event.key === "j" || event.key === "k") {
      step(event.key === "j" ? 1 : -1);
    }
  }

  function failed(error) {
    tell(`The samples cannot be shown: ${error.message}. The file may be damaged.`);
  }

  async function start() {
    if (typeof DecompressionStream === "undefined") {
      throw new Error("this browser cannot unpack them (it has no DecompressionStream): take one of 2023 or later");
    }
    const found = [...document.querySelectorAll("script.column")];
    const values = await Promise.all(found.map(unpacked));
    found.forEach((element, number) => { columns[element.dataset.name] = values[number]; element.remove(); });
    num = columns.id ? columns.id.length : 0;
    if (!num) {
      tell("There are no samples.");
      return;
    }
    haystack = columns.id.map((id, place) => `${id}\n${columns.snippet[place]}\n${missingText(place) || columns.answer[place]}`.toLowerCase());
    kept = Uint32Array.from(columns.kept.keys()).filter((place) => columns.kept[place]);
    ranks = new Uint32Array(num);
    kept.forEach((place, rank) => { ranks[place] = rank; });
    hasChanges.value = columns.change.some(Boolean);
    standing = standingPlaces();
    byId("controls").hidden = byId("browser").hidden = false;
    listen();
    fill();
    if (readAddress()) byId("samples").scrollIntoView();
    else show();
  }

  start()
    .catch((error) => tell(`The samples cannot be shown: ${error.message}.`))
    .finally(() => { document.documentElement.dataset.ready = ""; });
})();

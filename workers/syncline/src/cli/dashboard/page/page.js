// Asks once a second while somebody looks, and shows what is answered. Texts of others become text, never markup.
"use strict";

const byId = (id) => document.getElementById(id);
const PAUSE_MS = 1000;
// The curve and the events are asked for less often: they are long.
const DETAILS_EVERY = 3;

function element(name, content, className) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...[content ?? ""].flat());
  return made;
}

// Columns: [heading, what stands there, whether it is a number].
function fill(table, columns, rows, none, isChosen) {
  const heading = element("tr", columns.map(([title, , number]) => element("th", title, number ? "number" : "")));
  const body = rows.map((row) => {
    const cells = columns.map(([, cell, number]) => element("td", cell(row), number ? "number" : ""));
    return element("tr", cells, isChosen && isChosen(row) ? "chosen" : "");
  });
  table.replaceChildren(...(rows.length ? [heading, ...body] : [element("tr", element("td", none, "faint"))]));
}

const short = (value, digits = 4) =>
  value === null || value === undefined ? ""
    : Math.abs(value) >= 10 ** (digits - 1) ? Math.round(value).toLocaleString("en")
      : Number(value).toPrecision(digits);
// The time, with the date where it is not today.
function moment(ms) {
  const at = new Date(ms);
  return at.toDateString() === new Date().toDateString() ? at.toLocaleTimeString() : at.toLocaleString();
}
// A moment, or a duration: what ends in `_ms` may be either.
const when = (ms) =>
  (ms > 1e11 ? moment(ms) : ms < 1000 ? `${Math.round(ms)} ms` : span(ms));
const whole = (value) => (value ?? 0).toLocaleString("en");

function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 120) return `${s} s`;
  const minutes = Math.round(s / 60);
  return minutes < 120 ? `${minutes} min` : minutes < 2880 ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1440)} d`;
}

const ended = (tasks) => tasks.done + tasks.failed + tasks.skipped + tasks.canceled;

function progress(job) {
  const [done, all] = job.tasks ? [ended(job.tasks), job.tasks.total] : [job.samples_applied, job.samples_total];
  const bar = element("progress");
  bar.max = Math.max(all, 1);
  bar.value = done;
  const words = job.tasks ? `${whole(done)}/${whole(all)} tasks` : `epoch ${job.epochs_complete}/${job.epochs}`;
  return job.state === "damaged" ? "" : [bar, ` ${words}`];
}

const isOver = (job) => ["done", "failed", "canceled", "damaged"].includes(job.state);
const obstacle = (job) => (isOver(job) ? job.reason : [job.waiting_for, job.problem].filter(Boolean).join("; ")) || "";
// The engine writes a job when something happens to it: the speed of one that stands still is old.
const speed = (job, now) =>
  isOver(job) || job.samples_per_s_lately === null ? job.samples_per_s
    : now - job.progress_ms > 10000 ? 0 : job.samples_per_s_lately;

const chosen = () => decodeURIComponent(location.hash.slice(1));

function link(id) {
  const made = element("a", id);
  made.href = "#" + encodeURIComponent(id);
  return made;
}

function showJobs({ jobs, left_out, engine }) {
  const now = engine.now_ms ?? Date.now();
  const columns = [
    ["job", (job) => link(job.id)],
    ["state", (job) => element("span", job.state, `state ${job.state}`)],
    ["work", (job) => (job.tasks ? "tasks" : job.policy)],
    ["progress", progress],
    ["samples/s", (job) => (job.tasks ? "" : short(speed(job, now))), true],
    ["loss", (job) => short(job.loss), true],
    ["test accuracy", (job) => (job.test_accuracy === null ? "" : `${(job.test_accuracy * 100).toFixed(1)} %`), true],
    ["workers", (job) => job.workers, true],
    ["age", (job) => (job.submitted_ms ? span(now - job.submitted_ms) : ""), true],
    ["waits for", obstacle],
  ];
  const none = "No jobs yet: syncline submit JOB.toml";
  fill(byId("jobs"), columns, [...jobs].reverse(), none, (job) => job.id === chosen());
  if (left_out) byId("jobs").append(element("tr", element("td", `and ${whole(left_out)} older ones`, "faint")));
}

function showWorkers({ workers, engine }) {
  const columns = [
    ["worker", (worker) => worker.name],
    ["id", (worker) => worker.id],
    ["host", (worker) => worker.host],
    ["device", (worker) => worker.device],
    ["slot", (worker) => worker.training_slot, true],
    ["trains", (worker) => (worker.training_job ? link(worker.training_job) : "")],
    ["shards by", (worker) => worker.transport ?? ""],
    ["tasks", (worker) => worker.holding, true],
    ["silent for", (worker) => (worker.silent_ms > 2000 ? span(worker.silent_ms) : ""), true],
    ["waits for", (worker) => worker.blocked_on ?? ""],
  ];
  fill(byId("workers"), columns, workers, "No workers: syncline worker starts one");
  const missing = engine.shards - engine.shards_present;
  byId("engine").textContent = `engine ${engine.address}, version ${engine.version} · ${engine.shards_present} of ${engine.shards} shards`
    + ` · ${workers.length} training slots`;
  const problems = [missing > 0 || engine.shard_problem ? `shards: ${engine.shard_problem || `${missing} missing`}` : "",
    engine.standby_problem ? `standbys: ${engine.standby_problem}` : "",
    engine.disk_problem ? `disks: ${engine.disk_problem}` : "",
    engine.store_problem ? `Redis: ${engine.store_problem}` : ""].filter(Boolean);
  trouble(problems.join("\n"));
}

function trouble(text) {
  byId("trouble").textContent = text;
  byId("trouble").hidden = !text;
}

function times(member) {
  const parts = ["compute", "pull", "push", "wait", "throttle"].map((name) => [name, member[`${name}_us`]]);
  const all = parts.reduce((sum, [, us]) => sum + us, 0);
  const bar = element("div", parts.map(([name, us]) => {
    const part = element("i", "", name);
    part.style.width = `${all ? (100 * us) / all : 0}%`;
    part.title = `${name}: ${(us / 1e6).toFixed(1)} s`;
    return part;
  }), "bar");
  return bar;
}

// Settings that have no figure of their own, by their names in a job file.
function otherSettings(job) {
  const told = ["optimizer", "learning_rate", "warmup", "decay", "min_learning_rate", "policy", "batch", "micro_batch", "epochs", "seed"];
  const others = Object.entries(job.settings).filter(([name]) => name !== "data.digest" && !told.includes(name.replace("settings.", "")));
  return others.map(([name, value]) => [name.replace("settings.", ""), value]);
}

function showJob({ job, workers, notes }) {
  byId("job-name").textContent = job.id;
  byId("job-text").textContent = [obstacle(job), ...(isOver(job) ? [] : notes)].filter(Boolean).join("; ");
  const figures = job.tasks
    ? Object.entries(job.tasks).filter(([, count]) => typeof count === "number" && count).map(([name, count]) => [name, whole(count)])
    : [
      ["state", job.state], ["policy", job.policy], ["optimizer", job.optimizer], ["learning rate", job.learning_rate],
      ["schedule", job.schedule], ["batch", job.batch], ["micro_batch", job.micro_batch], ["seed", job.seed], ["epochs", `${job.epochs_complete} of ${job.epochs}`],
      ...otherSettings(job),
      ["samples", `${whole(job.samples_applied)} of ${whole(job.samples_total)}`],
      ["samples/s, on average", short(job.samples_per_s)], ["loss", short(job.loss)],
      ["validation loss", short(job.validation_loss)], ["validation accuracy", short(job.validation_accuracy)],
      ["best after", job.best_samples == null ? null : `${whole(job.best_samples)} samples`], ["reduced rate", job.reduced_learning_rate], ["stopped early", job.stopped_early],
      ["test loss", short(job.test_loss)], ["test accuracy", short(job.test_accuracy)],
      ["barriers", whole(job.barriers)], ["next barrier", job.next_barrier],
      ["waited at barriers", `${span(job.actual_wait_ms)}, predicted ${span(job.predicted_wait_ms)}`],
      ["most iterations ahead", whole(job.max_lead)],
      ["lost, torn, not finite", [job.iterations_lost, job.iterations_torn, job.iterations_skipped].map(whole).join(", ")],
      ["checkpoint", job.checkpoint], ["generation", job.generation],
    ];
  const known = figures.filter(([, value]) => value !== null && value !== undefined && value !== "");
  byId("job-figures").replaceChildren(...known.map(([name, value]) => element("div", [element("dt", name), element("dd", String(value))])));
  fill(byId("members"), [
    ["worker", (member) => member.name],
    ["host", (member) => member.host],
    ["state", (member) => member.state],
    ["time", times],
    ["iterations", (member) => whole(member.iterations), true],
    ["batch", (member) => member.batch, true],
    ["predicted ms", (member) => (member.predicted_interval_us === null ? "" : short(member.predicted_interval_us / 1000)), true],
    ["slower than most by", (member) => (member.slow_factor >= 1.05 ? `${short(member.slow_factor, 2)} times` : ""), true],
  ], workers, "No worker takes part");
}

function showEvents(events) {
  const known = (event) => Object.entries(event)
    .filter(([name, value]) => !["what", "at_ms", "cursor"].includes(name) && value !== null && value !== "")
    .map(([name, value]) => `${name.replace(/_ms$/, "")} ${name.endsWith("_ms") ? when(value) : value}`).join("  ");
  const columns = [
    ["when", (event) => moment(event.at_ms)],
    ["what", (event) => event.what.replaceAll("_", " ")],
    ["", known],
  ];
  fill(byId("events"), columns, [...events].reverse().slice(0, 50), "Nothing yet");
}

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(15000) });
  if (answer.ok) return answer.json();
  const text = await answer.text();
  if (!answer.headers.get("content-type").includes("json")) throw new Error(text);
  const { code, message, hint } = JSON.parse(text);
  throw new Error(`[${code}] ${message}\n${hint}`);
}

let looks = 0;
let shown = "";
async function look() {
  if (document.hidden) return;
  const cluster = await ask("/api/cluster");
  showJobs(cluster);
  showWorkers(cluster);
  const id = chosen();
  byId("job").hidden = !id;
  if (!id) return;
  const path = `/api/jobs/${encodeURIComponent(id)}`;
  const view = await ask(path);
  showJob(view);
  if (shown === id && looks++ % DETAILS_EVERY) return;
  shown = id;
  looks = 1;
  showEvents(await ask(`${path}/events`));
  byId("curve").hidden = Boolean(view.job.tasks);
  if (!view.job.tasks) byId("curve").src = `${path}/loss.svg?${Date.now()}`;
}

let turn = 0;
async function run() {
  const mine = ++turn;
  while (mine === turn) {
    try {
      await look();
    } catch (error) {
      trouble(error instanceof TypeError ? "`syncline dashboard` does not answer: it may have ended" : error.message);
    }
    await new Promise((done) => setTimeout(done, PAUSE_MS));
  }
}

byId("close").addEventListener("click", () => { location.hash = ""; });
addEventListener("hashchange", run);
document.addEventListener("visibilitychange", () => document.hidden || run());
run();

"""What scripts share: arguments, fresh processes, jobs, medians, tables."""

import argparse
import itertools
import json
import math
import os
import pickle
import platform
import re
import resource
import shlex
import statistics
import subprocess
import sys
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(FOLDER, "results")
# Results of jobs, so that a benchmark that was stopped goes on.
CACHE = os.path.join(FOLDER, "cache")
# Not the path of an address, and no division.
_PATH = re.compile(r"(?<![\w./:])/[\w.+-]+(?:/[\w.+-]*)*")


def arguments(doc, argv=None, first=(), choices=None, **defaults):
    """What a script was called with: one option for each default.

    An option has the type of its default. A list takes several values, False
    is a switch, and None takes a text. The names in `first` stand without
    dashes, and must be given where they have no default.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    for name in dict.fromkeys([*first, *defaults]):
        default = defaults.get(name)
        how = {"default": default, "choices": (choices or {}).get(name)}
        several = isinstance(default, (list, tuple, range))
        of_type = type(default[0] if several and default else default)
        if of_type in (int, float):
            how["type"] = of_type
        if name in first and name in defaults:
            how["nargs"] = "*" if several else "?"
        elif several:
            how["nargs"] = "+"
        if default is False:
            how = {"action": "store_true"}
        parser.add_argument(name if name in first else f"--{name}", **how)
    return parser.parse_args(argv)


def use_one_thread():
    """Before any work: seconds of the CPU are then those of the steps."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def peak_gb():
    """Peak resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


class Stopwatch:
    """Wall and CPU seconds of what runs in `with` blocks, added up."""

    wall = cpu = 0.0

    def __enter__(self):
        self._begin = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_):
        wall, cpu = self._begin
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu


def train(model, batches, steps):
    """CPU seconds of the steps; the first one, which traces, is left out."""
    import tensorflow as tf

    step = tf.function(lambda x, y: model.train_step((x, y)))
    step(*next(batches))
    clock = Stopwatch()
    for _ in range(steps - 1):
        batch = tf.nest.map_structure(tf.constant, next(batches))
        with clock:
            step(*batch)
    return clock.cpu


def median_ms(step, repeats, warmup=2, clock=time.perf_counter):
    """Median, least and greatest time of `step()` in milliseconds."""
    for _ in range(warmup):
        step()
    times = []
    for _ in range(repeats):
        start = clock()
        step()
        times.append((clock() - start) * 1e3)
    return medians(times)


def medians(times):
    return {
        "median_ms": statistics.median(times),
        "least_ms": min(times),
        "most_ms": max(times),
    }


def mean_ms(step, repeats):
    """Means of the time of `step()` and of the processor's, milliseconds."""
    with Stopwatch() as clock:
        for _ in range(repeats):
            step()
    return 1e3 * clock.wall / repeats, 1e3 * clock.cpu / repeats


def in_fresh_process(script, *args, python=sys.executable):
    """Runs `script args...`, whose last line of output is JSON.

    A failure gives `{"error": last line of the error output}`. Peers have a
    Python of another environment.
    """
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # TensorFlow uses oneDNN by itself only on processors with VNNI.
        "TF_ENABLE_ONEDNN_OPTS": "1",
        # A script imports `benchmarks`, too.
        "PYTHONPATH": os.pathsep.join(
            filter(None, [os.path.dirname(FOLDER), os.getenv("PYTHONPATH")])
        ),
    }
    done = subprocess.run(
        [python, script, *map(str, args)],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        # Killed, for its memory say, it has nothing to say.
        lines = done.stderr.strip().splitlines()
        told = lines[-1] if lines else f"exit status {done.returncode}"
        return {"error": told[:200]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def read(path):
    """The JSON in the file at `path`, or None without one."""
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf8") as f:
        return json.load(f)


def run_child(child):
    """Ends a process that `ask` started: prints what `child` returns, as JSON.

    A script calls it before it reads its own arguments.
    """
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(*json.loads(sys.argv[2])), default=float))
        sys.exit()


def ask(*values):
    """What this script's `child` returns for `values`, in a fresh process."""
    return in_fresh_process(sys.argv[0], "--child", json.dumps(values))


def once(name, *job, run):
    """The result of a job, JSON, which runs if there is none yet.

    It is kept in benchmarks/cache/<name>, a file for each job. An error is
    not, and is tried again the next time. `run` is a function of the job,
    mostly `ask`; None runs nothing.
    """
    path = os.path.join(CACHE, name, ",".join(map(str, job)) + ".json")
    if not os.path.exists(path) and run is not None:
        found = run(*job)
        print(name, *job, str(found)[:300], flush=True)
        if isinstance(found, dict) and "error" in found:
            return found
        write(path + ".part", found)
        os.replace(path + ".part", path)
    return read(path)


def pickled(name, make):
    """What `make()` gives, kept in benchmarks/cache/<name>.pickle."""
    path = os.path.join(CACHE, name + ".pickle")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".part", "wb") as f:
            pickle.dump(make(), f, protocol=4)
        os.replace(path + ".part", path)
    with open(path, "rb") as f:
        return pickle.load(f)


def of_all_seeds(name, *job, seeds, run):
    """What `once` gives for a job with each seed; an error ends the run."""
    found = [once(name, *job, seed, run=run) for seed in seeds]
    for one in found:
        if "error" in one:
            sys.exit(one["error"])
    return found


def best_rate(rates, score_of, factor=None, most=math.inf):
    """`(best, tried)`: the rate with the greatest score, and all scores.

    While the best rate is the least or the greatest, one beyond it by `factor`
    is tried, too, up to `most` rates. A score of None is left out.
    """
    tried, pending, best = {}, [*rates], None
    while pending:
        rate = pending.pop(0)
        if (score := score_of(rate)) is None:
            continue
        tried[rate] = score
        best = max(tried, key=tried.get)
        if factor and not pending and len(tried) < most:
            edges = {max(tried): best * factor, min(tried): best / factor}
            pending = [edges[best]] if best in edges else []
    return best, tried


def means(rows, *keys):
    return {key: statistics.fmean(row[key] for row in rows) for key in keys}


def mean_curve(curves, *keys):
    """Means of the seeds at each point of their curves, a list of dicts."""
    return [means(points, *keys) for points in zip(*curves, strict=True)]


def seconds_to(least, curves, score):
    """Mean CPU seconds to a score, or "" where a curve never gets there."""
    reached = [[p for p in curve if p[score] >= least] for curve in curves]
    if not all(reached):
        return ""
    return statistics.fmean(points[0]["cpu_seconds"] for points in reached)


def standard_error(values):
    """Of their mean; "" for a single value."""
    if len(values) < 2:
        return ""
    return statistics.stdev(values) / len(values) ** 0.5


def machine():
    with open("/proc/cpuinfo") as f:
        text = f.read()
    found = re.search(r"^model name\s*:(.*)", text, re.M)
    name = found[1].strip() if found else platform.machine()
    wide = "AVX-512" if "avx512f" in text else "AVX2"
    if limit := os.environ.get("ONEDNN_MAX_CPU_ISA"):
        wide += f" limited to {limit}"
    return f"{name}, {os.cpu_count()} cores, {wide}"


def command():
    """How this process was started, a line of a shell."""
    started = [os.path.relpath(sys.argv[0], os.path.dirname(FOLDER))]
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name.startswith("benchmarks."):
        started = ["-m", spec.name.removesuffix(".__main__")]
    return shlex.join(["python", *started, *sys.argv[1:]])


def _circumstances():
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "command": command(),
    }


def save(name, rows, keys=(), **circumstances):
    """Writes results/<name>.json and prints a table of `rows` (dicts).

    Earlier rows that differ in one of the columns `keys` stay.
    `circumstances` replace the date, the machine or the command.
    """
    if keys:
        rows = with_earlier(name, rows, keys)
    record = {**_circumstances(), **circumstances, "rows": rows}
    write(result_path(name + ".json"), record)
    print(f"{record['date']}, {record['machine']}\n{table(rows)}")


def result_path(name):
    return os.path.join(RESULTS, name)


def recorded(name):
    return read(result_path(name + ".json"))


def finished(name):
    """Rows of results/<name>.json, of a benchmark that goes on with it."""
    return (recorded(name) or {"rows": []})["rows"]


def with_earlier(name, rows, keys):
    """`rows`, and those of results/<name>.json that have other `keys`.

    Each row says when, where and how it was measured.
    """
    record = recorded(name) or {"rows": ()}
    told = {key: record.get(key) for key in _circumstances()}
    earlier = [{"measured": told, **row} for row in record["rows"]]
    now = [{"measured": _circumstances(), **row} for row in rows]
    new = {tuple(row.get(key) for key in keys) for row in rows}
    return [r for r in earlier if tuple(map(r.get, keys)) not in new] + now


def of_seeds(lines):
    """Means and deviations over the dicts of seeds, one dict; or an error."""
    failed = [line for line in lines if "error" in line]
    if failed or len(lines) == 1:
        return (failed or lines)[0]
    found = {**lines[0], "seeds": len(lines)}
    for key, value in lines[0].items():
        values = [line[key] for line in lines]
        if isinstance(value, float):
            found[key] = statistics.fmean(values)
            is_told = not key.endswith("_s") and key != "rate"
            # What overflowed has no deviation.
            if is_told and math.isfinite(found[key]):
                found[f"{key} +-"] = statistics.pstdev(values)
    return found


def mean_row(lines):
    """`of_seeds` with the deviation of the first score alone."""
    row = of_seeds(lines)
    others = [name for name in row if name.endswith("+-")][1:]
    return {name: row[name] for name in row if name not in others}


def cases(**columns):
    """A dict for each combination of values; the last column changes first."""
    return [
        dict(zip(columns, values, strict=True))
        for values in itertools.product(*columns.values())
    ]


def compare(name, child, cases, keys=()):
    """Asks `child` for each case, saves the rows so far, and returns all.

    A case has the arguments of `child`, the first columns of its row or rows.
    `save` describes `keys`.
    """
    run_child(child)
    rows = []
    for case in cases:
        found = ask(*case.values())
        found = found if isinstance(found, list) else [found]
        rows += [{**case, **row} for row in found]
        save(name, rows, keys)
    return rows


def numbers(*defaults):
    """The numbers that the script is called with, a list of ints."""
    given = [int(text) for text in sys.argv[1:] if text.isdigit()]
    return given or list(defaults)


def write(path, record):
    """Writes what report.py reads: date, machine, command and rows.

    Absolute paths, of a command or in an error, become "...". JSON has no
    infinity and no NaN: in the rows these are "inf" and "".
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    record = without_paths(record)
    if "rows" in record:
        rows = [
            {k: _in_json(v) for k, v in row.items()} for row in record["rows"]
        ]
        record = {**record, "rows": rows}
    with open(path, "w") as f:
        json.dump(record, f, indent=1)


def _in_json(value):
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "" if math.isnan(value) else str(value)


def without_paths(value):
    """Strings in dicts and lists, with "..." for each absolute path."""
    if isinstance(value, dict):
        return {key: without_paths(part) for key, part in value.items()}
    if isinstance(value, list):
        return [without_paths(part) for part in value]
    return _PATH.sub("...", value) if isinstance(value, str) else value


def table(rows):
    """A Markdown table of dicts, columns in order of appearance.

    How a row was "measured" is none.
    """
    keys = dict.fromkeys(key for row in rows for key in row)
    columns = [key for key in keys if key != "measured"]
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    for row in rows:
        cells = [cell(row.get(column, "")) for column in columns]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(value):
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"

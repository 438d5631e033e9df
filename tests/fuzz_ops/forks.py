"""Runs jobs in processes with limits, which may die or hang."""

import ctypes
import faulthandler
import json
import os
import resource
import select
import signal
import threading
import time

#: Bytes that a job may map beside TensorFlow.
MEMORY = 2**30
#: Of glibc's malloc.h.
M_ARENA_MAX = -8
#: Bytes of the stack that jobs run on, mapped before the limit is set: the main
#: thread's grows page by page, and where no memory is left that is a SIGSEGV.
STACK = 2**24
#: Seconds of the processor without a word, after which a job hangs; and seconds
#: in which it does nothing at all. (On a busy machine they are not much.)
PATIENCE = 20
IDLE = 180


def run_jobs(jobs, patience=PATIENCE, idle=IDLE, memory=MEMORY):
    """Yields `(number, result)` of each job, in order.

    `jobs` is a list of functions without arguments, whose results JSON can
    hold. They run one after the other in one forked process, which a job that
    ends it or is silent too long costs: the result is then a dict
    `{"died": "SIGSEGV"}` or `{"died": "hang"}`, and another process goes on. So
    it does where half of the memory is gone.

    TensorFlow may be imported, but must not have been used: its threads do not
    survive the fork.
    """
    done = 0
    while done < len(jobs):
        reader, pid = _fork(jobs, done, memory)
        for result in _results(reader, pid, patience, idle):
            yield done, result
            done += 1
        how = _end(reader, pid)
        if how is not None:
            yield done, {"died": how}
            done += 1


def _fork(jobs, first, memory):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return reader, pid
    os.close(reader)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    threading.stack_size(STACK)
    worker = threading.Thread(target=_work, args=(jobs[first:], writer, memory))
    worker.start()
    worker.join()
    os._exit(1)  # not reached: the worker ends the process


def _work(jobs, writer, memory):
    """Writes the jobs' results, a line of JSON each, and ends the process."""
    try:
        most = _limit_memory(memory)
        for job in jobs:
            os.write(writer, (json.dumps(job()) + "\n").encode())
            # TensorFlow itself does not survive where there is none left.
            if most - mapped() < memory // 2:
                break
        os._exit(0)
    except BaseException as e:  # a result that is lost would be no failure
        print(f"a job raised {e!r}")
        os._exit(1)


def mapped():
    """Bytes of the address space in use."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[0]) * resource.getpagesize()


def _limit_memory(memory):
    """Once TensorFlow's threads are there, and what they map; the limit."""
    import tensorflow as tf

    # Else each thread's malloc maps 128 MiB ahead.
    ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
    tf.linalg.matmul(tf.ones([64, 64]), tf.ones([64, 64]))
    most = mapped() + memory
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return most


def _results(reader, pid, patience, idle):
    """Until the process ends or hangs."""
    buffer, start = b"", _seconds_used(pid)
    while True:
        before = _seconds_used(pid)
        if not select.select([reader], [], [], idle)[0]:
            used = _seconds_used(pid)
            if used - before < 0.1 or used - start > patience:
                return
            continue
        data = os.read(reader, 2**16)
        if not data:
            return
        *lines, buffer = (buffer + data).split(b"\n")
        yield from map(json.loads, lines)
        start = _seconds_used(pid)


def _seconds_used(pid):
    """Of all processors, by a process that is not waited for."""
    with open(f"/proc/{pid}/stat") as f:
        user, system = f.read().rsplit(")")[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _end(reader, pid):
    """How the process died: None if it did not."""
    waiting = select.select([reader], [], [], 0)[0]
    os.close(reader)
    if not waiting:  # an ended one has closed its end
        os.kill(pid, signal.SIGUSR1)
        time.sleep(1)  # its threads' stacks are written to stderr
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return "hang"
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return None if os.WEXITSTATUS(status) == 0 else "an exit"

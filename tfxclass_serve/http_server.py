"""Serves HTTP/1.1: connections, their deadlines, and how they end.

A thread for each connection. Connections that wait for a client are closed,
the longest waiting first, where a new one finds no place: clients that send
their requests slowly, or none, lock nobody out.
"""

import contextlib
import selectors
import socket
import threading
import time

from tfxclass_serve.http_connection import Connection

_BACKLOG = 512


class HttpServer:
    """Answers requests until `close`.

    Args:
        answer: function of `(method, target, body)` that returns
            `(status, content type, body)`.
        refuse: function of `(status, message)` that returns the same, for
            requests that are not understood or come at a bad time.
        address: `(host, port)`; port 0 is any that is free.
        max_request_bytes: int, size of a body, also of one that is inflated;
            larger ones are refused.
        timeout: seconds for a body to come, for an answer to be taken, and
            between two requests.
        header_timeout: seconds for a head to come.
        max_connections: int, at once.
    """

    def __init__(
        self,
        answer,
        refuse,
        address,
        max_request_bytes=1 << 26,
        timeout=30.0,
        header_timeout=10.0,
        max_connections=256,
    ):
        self.answer = answer
        self.refuse = refuse
        self.max_request_bytes = max_request_bytes
        self.timeout = timeout
        self.header_timeout = min(header_timeout, timeout)
        self._max_connections = max_connections
        self.changed = threading.Condition()
        self.is_draining = False
        self._connections = set()
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._listener = socket.create_server(
            address, family=family, backlog=_BACKLOG
        )
        self._listener.setblocking(False)
        self._woken, self._waker = socket.socketpair()
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def start(self):
        """Serves in threads of its own."""
        self._thread.start()

    def close(self, grace=10.0, linger=1.0):
        """Takes no more connections; ends those that there are.

        Requests under way are answered. One that comes later, on a connection
        that is kept alive, is answered 503; after `linger` seconds without
        one the connection is closed. A second call does nothing.

        Args:
            grace: seconds; what takes longer is cut off.

        Returns:
            Whether every request under way was answered.
        """
        end = time.monotonic() + grace
        with self.changed:
            if self.is_draining:
                return True
            self.is_draining = True
        self._waker.send(b"x")
        if self._thread.is_alive():
            self._thread.join(grace)
        self._listener.close()
        self._wait_for_none(min(grace, linger))
        self._end(lambda one: one.is_idle, socket.SHUT_RD)
        is_clean = self._wait_for_none(max(end - time.monotonic(), 0.1))
        self._end(lambda one: True, socket.SHUT_RDWR)
        self._woken.close()
        self._waker.close()
        return is_clean

    def _wait_for_none(self, seconds):
        with self.changed:
            return self.changed.wait_for(lambda: not self._connections, seconds)

    def _end(self, is_chosen, how):
        with self.changed:
            for one in filter(is_chosen, self._connections):
                one.shutdown(how)

    def _accept(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self.is_draining:
                selector.select()
                self._accept_all()
        # No new ones; those that were made wait to be accepted.
        self._listener.listen(0)
        self._accept_all()
        self._listener.close()

    def _accept_all(self):
        """Accepts those that wait; in a storm of new ones, so many."""
        for _ in range(_BACKLOG):
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError:  # No more file descriptors: one has to go.
                self._make_place(0)
                time.sleep(0.05)
                return
            self._begin(client)

    def _begin(self, client):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one = Connection(self, client)
        if not self._make_place(self._max_connections):
            one.refuse(503, "Too many connections.")
            one.close()
            return
        with self.changed:
            self._connections.add(one)
        try:
            threading.Thread(target=self._run, args=[one], daemon=True).start()
        except RuntimeError:  # No more threads.
            self._forget(one)

    def _make_place(self, most):
        """Whether there is a place for one more; a waiting one may go."""
        with self.changed:
            if len(self._connections) < most:
                return True
            waiting = [one for one in self._connections if one.is_waiting]
            if not waiting:
                return False
            oldest = min(waiting, key=lambda one: one.since)
            oldest.is_evicted = True
            oldest.shutdown(socket.SHUT_RDWR)
            # Its thread is about to end; a new one does not wait for that.
            self._connections.discard(oldest)
            return True

    def _run(self, one):
        try:
            # A client that went away is no error.
            with contextlib.suppress(OSError):
                one.serve()
        finally:
            self._forget(one)

    def _forget(self, one):
        with self.changed:
            self._connections.discard(one)
            self.changed.notify_all()
            one.close()

"""The REST API over HTTP: answers as JSON, the page, the metrics."""

import json
import logging
import os

from tfxclass_serve import errors
from tfxclass_serve import metrics as metrics_lib
from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.http_server import HttpServer
from tfxclass_serve.rest_api import RestApi

_PAGE = os.path.join(os.path.dirname(__file__), "page.html")
_JSON = "application/json"

_log = logging.getLogger("tfxclass_serve")


class RestServer(HttpServer):
    """Answers REST requests until `close`.

    Args:
        models: `Models`.
        metrics: `Metrics`.
        address: `(host, port)`; port 0 is any that is free.
        **limits: of `HttpServer`.
    """

    def __init__(self, models, metrics, address, **limits):
        self._models = models
        self._metrics = metrics
        self._api = RestApi(models, metrics)
        super().__init__(self._answer, _error, address, **limits)

    def _answer(self, method, target, body):
        path = target.partition("?")[0]
        if method == "GET" and path == "/":
            return 200, "text/html; charset=utf-8", self._page()
        if method == "GET" and path == metrics_lib.PATH:
            return 200, metrics_lib.TYPE, self._metrics.page()
        try:
            return _document(200, self._api.answer(method, path, body))
        except TensorFlowError as e:
            status = errors.HTTP.get(e.code, 500)
            return _error(status, errors.message_of(e))
        except Exception as e:  # A bug of ours: the server goes on.
            _log.exception("A request failed.")
            return _error(500, errors.message_of(e))

    def _page(self):
        """The page, with the names of the models."""
        names = json.dumps(sorted(self._models.names()))
        with open(_PAGE, encoding="utf-8") as f:
            page = f.read()
        # "</script>" in a name would end the element.
        return page.replace(
            "[/*names*/]", names.replace("<", "\\u003c")
        ).encode()


def _error(status, message):
    return _document(status, {"error": message})


def _document(status, document):
    text = json.dumps(document, ensure_ascii=False)
    return status, _JSON, text.encode("utf-8", errors="replace")

"""Talking to an engine over HTTP: one place that names what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from collectors.errors import SourceRefused, SourceUnreachable
from collectors.records.parsing import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back.

    Attributes:
        status: HTTP status.
        body: the JSON object; empty where there was none.
        message: the error's one line; empty for a success.
    """

    status: int
    body: JsonObject
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAddress:
    """An engine, its key and the client that reaches it.

    Attributes:
        base_url: such as ``http://127.0.0.1:8401``.
        client: connection pool; its timeout holds unless a call gives another.
        api_key: bearer key; empty for none.
    """

    base_url: str
    client: httpx.Client
    api_key: str = ""

    def headers(self) -> dict[str, str]:
        """Return the headers that every call carries."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> Answer:
        """Send a request and return the answer, whatever its status.

        Raises:
            SourceUnreachable: no answer came.
            SourceRefused: what came is not JSON.
        """
        try:
            response = self.client.request(
                method,
                f"{self.base_url}{path}",
                params=dict(params or {}),
                json=body,
                headers=self.headers(),
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise unreachable(self.base_url, path, error) from error
        return read_answer(response.status_code, response, f"{self.base_url}{path}")

    def get(self, path: str, params: Mapping[str, str | int] | None = None) -> JsonObject:
        """Return the body of a successful answer.

        Raises:
            SourceUnreachable: no answer came, or the engine is not ready (5xx).
            SourceRefused: the engine refused; the message says why.
        """
        answer = self.send("GET", path, params=params)
        self.raise_unless_ok(answer, path)
        return answer.body

    def raise_unless_ok(self, answer: Answer, path: str) -> None:
        """Turn an answer that is not a success into an error.

        Raises:
            SourceUnreachable: 5xx.
            SourceRefused: any other status but 2xx.
        """
        where = f"{self.base_url}{path}"
        if answer.status >= 500:
            raise SourceUnreachable(f"{where} answered {answer.status}: {answer.message}")
        if answer.status in (401, 403):
            raise SourceRefused(
                f"{where} refused the key ({answer.status}); set SPECTUNER_ENGINE_API_KEY"
            )
        if not 200 <= answer.status < 300:
            raise SourceRefused(f"{where} answered {answer.status}: {answer.message}")


def unreachable(base_url: str, path: str, error: Exception) -> SourceUnreachable:
    """Name the address that did not answer."""
    reason = str(error) or type(error).__name__
    return SourceUnreachable(f"{base_url}{path} did not answer ({reason}); is the engine up?")


def read_answer(status: int, response: httpx.Response, where: str) -> Answer:
    """Read the JSON of an answer.

    Raises:
        SourceRefused: it is not a JSON object.
    """
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        if status >= 400:
            return Answer(status=status, body={}, message=f"no reason given (HTTP {status})")
        raise SourceRefused(f"{where} did not answer a JSON object; is it a spectuner engine?")
    error = body.get("error")
    message = str(error.get("message", "")) if isinstance(error, dict) else ""
    return Answer(status=status, body=body, message=message or f"HTTP {status}")

"""A stand-in for the Hugging Face Hub on the loopback: as much of its protocol as huggingface_hub uses here."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

_COMMIT_URL = "https://huggingface.co/me/mine/commit/0"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FIRST_COMMIT = "f" * 40  # without files


class Hub:
    """The state of the server."""

    def __init__(self):
        # By the name, of a data set after `datasets/`, of a branch before `@BRANCH`, and the path in it.
        self.files: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []  # the lines `GET /path` so far
        self.refusal: tuple[int, str] | None = None  # the status and the error code of every answer, (401, "GatedRepo")
        self.cut = False  # whether a file ends in the middle

    def add(self, name: str, folder: Path) -> None:
        """A model with the files of a folder."""
        files = [path for path in folder.rglob("*") if path.is_file()]
        self.files[name] = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    def branches(self, name: str) -> dict[str, str]:
        """The last commit of each branch of a model."""
        others = [each.removeprefix(f"{name}@") for each in self.files if each.startswith(f"{name}@")]
        return {"main": COMMIT, **{branch: hashlib.sha1(branch.encode()).hexdigest() for branch in others}}


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.requests.append(f"{self.command} /{path}")
        status, content, headers = self._answer(path, body)
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            is_cut = self.hub.cut and "/resolve/" in path
            self.wfile.write(content[: len(content) // 2] if is_cut else content)
            self.close_connection = self.close_connection or is_cut

    def _answer(self, path: str, body: bytes) -> tuple[int, object, dict[str, str]]:
        """The status, the content and further headers."""
        if self.hub.refusal is not None:
            return self.hub.refusal[0], b"", {"X-Error-Code": self.hub.refusal[1]}
        if path == "api/validate-yaml":
            return 200, {"errors": [], "warnings": []}, {}
        if path == "api/repos/create":
            given = json.loads(body)
            name = "/".join(filter(None, (given.get("organization"), given["name"])))
            self.hub.files.setdefault(name, {})
            return 200, {"url": f"http://{self.headers['Host']}/{name}"}, {}
        kind = "datasets/" if path.removeprefix("api/").startswith("datasets/") else ""
        owner, name, verb, *rest = [*path.removeprefix(f"api/{kind or 'models/'}").removeprefix(kind).split("/"), ""]
        files = self.hub.files.get(f"{kind}{owner}/{name}")
        if files is None:
            return 404, b"", {"X-Error-Code": "RepoNotFound"}
        name = f"{kind}{owner}/{name}"
        branches, revision = self.hub.branches(name), "".join(rest[:1]) or "main"
        if verb == "refs":
            refs = [{"name": each, "ref": f"refs/heads/{each}", "targetCommit": branches[each]} for each in branches]
            return 200, {"branches": refs, "converts": [], "tags": []}, {}
        if verb == "commits":
            facts = {"title": "", "message": "", "date": "2026-01-01T00:00:00.000Z", "authors": []}
            return 200, [{"id": commit, **facts} for commit in (COMMIT, FIRST_COMMIT)], {}
        if verb == "branch" and revision in branches:
            return 409, b"", {}
        if verb == "branch":
            first = json.loads(body).get("startingPoint") == FIRST_COMMIT
            self.hub.files[f"{name}@{revision}"] = {} if first else {**files}
            return 200, b"", {}
        branch = next((each for each, commit in branches.items() if revision in (each, commit)), None)
        if branch is None:
            return 404, b"", {"X-Error-Code": "RevisionNotFound"}
        files = files if branch == "main" else self.hub.files[f"{name}@{branch}"]
        commit = branches[branch]
        if verb == "resolve":
            content = files["/".join(rest[1:-1])]
            headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
            if (wanted := self.headers.get("Range", "")).startswith("bytes="):
                begin, end = map(int, wanted.removeprefix("bytes=").split("-"))
                return 206, content[begin : end + 1], headers
            return 200, content, headers
        if verb == "preupload":
            mode = {"uploadMode": "regular", "shouldIgnore": False}
            return 200, {"files": [{**mode, "path": each["path"]} for each in json.loads(body)["files"]]}, {}
        if verb == "commit":
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "deletedFile":
                    del files[line["value"]["path"]]
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return 200, {"commitUrl": _COMMIT_URL, "commitOid": COMMIT, "success": True}, {}
        if verb == "tree":
            entries = [{"type": "file", "path": path, **_facts(path, content)} for path, content in files.items()]
            folders = sorted({str(parent) for name in files for parent in PurePosixPath(name).parents} - {"."})
            entries += [{"type": "directory", "path": folder, "oid": ""} for folder in folders]
            return 200, [entry for entry in entries if entry["path"].startswith("/".join(rest[1:-1]))], {}
        return 200, {"id": name, "sha": commit, "siblings": []}, {}

    do_GET = do_HEAD = do_POST = _handle  # noqa: N815


def _facts(path: str, content: bytes) -> dict[str, object]:
    facts = {"size": len(content), "oid": hashlib.sha1(content).hexdigest()}
    if path.endswith(".safetensors"):
        facts["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
    return facts


@contextmanager
def hub_on_loopback(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Hub]:
    """Runs the server, and lets huggingface_hub use it and an empty cache."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name, value in {
        "ENDPOINT": address,
        "HUGGINGFACE_CO_URL_TEMPLATE": f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
        "HF_HUB_CACHE": str(cache),
        "HF_TOKEN_PATH": str(cache / "token"),
        "HF_HUB_DISABLE_XET": True,
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()

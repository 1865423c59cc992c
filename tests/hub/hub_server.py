"""A server that speaks the Hub's protocol, with the faults that networks have, and a second host
that large files are redirected to."""
import hashlib
import http.server
import json
import threading
import urllib.parse
from dataclasses import dataclass, field

COMMIT = "c0ffee" + "0" * 34


def git_sum(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def is_large(name):
    """What repositories keep in LFS."""
    return name.endswith((".safetensors", ".bin", ".gguf", "tokenizer.model"))


@dataclass
class Repository:
    files: dict  # name -> bytes
    commit: str = COMMIT
    revisions: tuple = ("main",)
    token: str = ""  # that is needed to see it
    gated: bool = False  # the list of files is open, they are not
    lists_files: bool = True  # in the answer that names the commit
    etags: dict = field(default_factory=dict)  # in place of the right ones


@dataclass
class Faults:
    break_after: int = 0  # bytes of a body, then the connection closes ...
    breaks: int = 0  # ... so many times
    statuses: list = field(default_factory=list)  # of the next answers
    ignore_ranges: bool = False
    slowly: float = 0.0  # seconds between pieces of a body


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server.hub
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        self.server.requests.append((self.command, path, dict(self.headers)))
        if self.server is not hub.api:
            return self.send_file(hub.stored[path.rsplit("/", 1)[1]], {})
        if hub.faults.statuses:
            return self.answer(hub.faults.statuses.pop(0), {"Retry-After": "0"})
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            return self.send_api("/".join(parts[2:4]), parts[4], "/".join(parts[5:]))
        return self.send_resolved("/".join(parts[:2]), parts[3], "/".join(parts[4:]))

    def find(self, name, revision, for_file):
        hub = self.server.hub
        repository = hub.repositories.get(name)
        given = self.headers.get("Authorization", "")
        if given and given != f"Bearer {hub.token}":
            self.answer(401, {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif repository is None and given:
            self.answer(404, {"X-Error-Code": "RepoNotFound"})
        elif repository is None or (repository.token and not given):
            self.answer(401, {"X-Error-Code": "RepoNotFound"})
        elif revision not in (*repository.revisions, repository.commit):
            self.answer(404, {"X-Error-Code": "RevisionNotFound"})
        elif repository.gated and for_file:
            self.answer(403 if given else 401, {"X-Error-Code": "GatedRepo"})
        else:
            return repository
        return None

    def send_api(self, name, what, revision):
        repository = self.find(name, revision, for_file=False)
        if repository is None:
            return
        names = sorted(repository.files)
        if what == "tree":
            entries = [self.tree_entry(n, repository.files[n]) for n in names]
            return self.answer(200, {}, json.dumps(entries).encode())
        info = {"id": name, "sha": repository.commit}
        if repository.lists_files:
            info["siblings"] = [{"rfilename": n} for n in names]
        self.answer(200, {}, json.dumps(info).encode())

    @staticmethod
    def tree_entry(name, data):
        entry = {"type": "file", "path": name, "size": len(data), "oid": git_sum(data)}
        if is_large(name):
            entry["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 130}
        return entry

    def send_resolved(self, name, revision, file):
        hub = self.server.hub
        repository = self.find(name, revision, for_file=True)
        if repository is None:
            return
        headers = {"X-Repo-Commit": repository.commit}
        if file not in repository.files:
            return self.answer(404, {**headers, "X-Error-Code": "EntryNotFound"})
        data = repository.files[file]
        if not is_large(file):
            etag = repository.etags.get(file, git_sum(data))
            return self.send_file(data, {**headers, "ETag": f'"{etag}"'})
        hub.stored[sha256(data)] = data
        etag = repository.etags.get(file, sha256(data))
        self.answer(302, {**headers, "X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(data)),
                          "Location": f"{hub.storage_url}/{sha256(data)}?signature=1"})

    def send_file(self, data, headers):
        faults = self.server.hub.faults
        wanted = self.headers.get("Range")
        begin = 0
        status = 200
        if wanted and not faults.ignore_ranges:
            begin, end = wanted.removeprefix("bytes=").split("-")
            begin, end = int(begin), min(int(end or len(data)), len(data) - 1)
            status = 206
            headers = {**headers, "Content-Range": f"bytes {begin}-{end}/{len(data)}"}
            data = data[:end + 1]
        self.answer(status, headers, data[begin:])

    def answer(self, status, headers, body=b""):
        faults = self.server.hub.faults
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        broken = faults.breaks > 0 and len(body) > faults.break_after
        if broken:
            faults.breaks -= 1
            body = body[:faults.break_after]
        piece = 4096 if faults.slowly else 1 << 20
        for at in range(0, len(body), piece):
            try:
                self.server.hub.sent += self.wfile.write(body[at:at + piece])
            except OSError:
                self.close_connection = True
                return
            if faults.slowly:
                self.server.hub.stopped.wait(faults.slowly)
        if broken:
            self.close_connection = True


class Hub:
    """Serves until it is closed."""

    def __init__(self, token="hf_secret"):
        self.token = token
        self.repositories = {}
        self.faults = Faults()
        self.stored = {}
        self.sent = 0  # bytes of bodies
        self.stopped = threading.Event()
        self.api, self.url = self.start()
        self.storage, self.storage_url = self.start()

    def start(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.hub = self
        server.requests = []
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02},
                         daemon=True).start()
        return server, f"http://127.0.0.1:{server.server_port}"

    def requests(self, command="GET"):
        """The paths that were asked for, of both hosts."""
        return [path for server in (self.api, self.storage)
                for what, path, _ in server.requests if what == command]

    def close(self):
        self.stopped.set()
        for server in (self.api, self.storage):
            server.shutdown()
            server.server_close()

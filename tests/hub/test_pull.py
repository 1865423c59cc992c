"""Models by name: what winnow brings from a Hub, how it fails, and that huggingface_hub reads its
cache as winnow reads that one's."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

import pytest

from hub_server import COMMIT, Faults, Hub, Repository, git_sum, sha256

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("WINNOW_BINARY", str(ROOT / "build/release/bin/winnow"))
MODEL = ROOT / "tests/fixtures/models/llama"
TOKENIZER = ROOT / "assets/base"
NAME = "some-org/tiny.model"
WEIGHTS = "model.safetensors"
NOT_NEEDED = {"README.md": b"# tiny", "pytorch_model.bin": b"pickled", "onnx/model.onnx": b"graph",
              "original/consolidated.00.pth": b"pickled", WEIGHTS + ".part": b"?"}


def model_files():
    paths = [MODEL / "config.json", MODEL / WEIGHTS, TOKENIZER / "tokenizer.json",
             TOKENIZER / "tokenizer_config.json", TOKENIZER / "generation_config.json"]
    return {path.name: path.read_bytes() for path in paths}


@pytest.fixture
def hub():
    server = Hub()
    server.repositories[NAME] = Repository({**model_files(), **NOT_NEEDED})
    yield server
    server.close()


@pytest.fixture
def home(tmp_path):
    return tmp_path / "hf"


def environment(home, hub=None, **more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    kept["HF_HOME"] = str(home)
    kept["no_proxy"] = "*"
    if hub:
        kept["HF_ENDPOINT"] = hub.url
    return {**kept, **more}


def winnow(*arguments, env, **more):
    return subprocess.run([BINARY, *arguments], env=env, capture_output=True, text=True,
                          cwd=ROOT, timeout=300, **more)


def pull(home, hub, name=NAME, **more):
    return winnow("pull", name, env=environment(home, hub, **more))


def expect_error(result, *parts):
    assert result.returncode == 1, result.stdout
    last = result.stderr.splitlines()[-1]
    assert last.startswith("winnow: error: "), result.stderr
    for part in parts:
        assert part in last


def repository_folder(home):
    return home / "hub" / ("models--" + NAME.replace("/", "--"))


def snapshot(home):
    return repository_folder(home) / "snapshots" / COMMIT


def assert_nothing_half_there(home):
    assert not (repository_folder(home) / "snapshots").exists()
    assert not (repository_folder(home) / "refs").exists()


def ranges(hub):
    return sorted((headers["Range"] for server in (hub.api, hub.storage)
                   for _, _, headers in server.requests if "Range" in headers),
                  key=lambda text: int(text.removeprefix("bytes=").split("-")[0]))


def asked_for(hub, text):
    return [path for path in hub.requests() if text in path]


def test_what_is_needed_comes_in_the_layout_of_huggingface_hub(hub, home):
    result = pull(home, hub)
    assert result.returncode == 0, result.stderr
    assert pathlib.Path(result.stdout.strip()) == snapshot(home)
    files = model_files()
    shown = {path.name: path for path in snapshot(home).iterdir()}
    assert set(shown) == set(files)
    for name, path in shown.items():
        etag = sha256(files[name]) if name == WEIGHTS else git_sum(files[name])
        assert os.readlink(path) == f"../../blobs/{etag}"
        assert path.read_bytes() == files[name]
    assert (repository_folder(home) / "refs/main").read_text() == COMMIT
    assert not list(repository_folder(home).rglob("*.incomplete"))
    assert {path.name for path in repository_folder(home).iterdir()} == {"blobs", "refs",
                                                                         "snapshots"}
    count = len(hub.requests())
    assert pull(home, hub).returncode == 0  # nothing changed: the list alone
    assert len(hub.requests()) == count + 1


def test_a_name_in_place_of_a_directory(hub, home):
    env = environment(home, hub)
    text = "Once upon a time"
    by_path = winnow("tokenize", "--model", str(TOKENIZER), env=env, input=text)
    by_name = winnow("tokenize", "--model", NAME, env=env, input=text)
    assert by_name.returncode == 0, by_name.stderr
    assert by_name.stdout == by_path.stdout
    count = len(hub.requests() + hub.requests("HEAD"))
    assert winnow("inspect", NAME + "@main", env=env).returncode == 0
    assert winnow("eval", "latency", "--model", NAME, env=env).returncode == 0
    assert len(hub.requests() + hub.requests("HEAD")) == count  # from the cache


def test_a_directory_of_that_name_wins(hub, home, tmp_path):
    (tmp_path / "some-org").mkdir()
    (tmp_path / NAME).symlink_to(MODEL)
    result = subprocess.run([BINARY, "inspect", NAME], env=environment(home, hub), cwd=tmp_path,
                            capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert not hub.requests()


def test_other_revisions(hub, home):
    hub.repositories[NAME].revisions = ("main", "v1.0", "refs/pr/7")
    for revision in ("v1.0", "refs/pr/7", COMMIT):
        result = pull(home, hub, f"{NAME}@{revision}")
        assert result.returncode == 0, result.stderr
    assert (repository_folder(home) / "refs/refs/pr/7").read_text() == COMMIT
    assert not (repository_folder(home) / "refs/main").exists()
    expect_error(pull(home, hub, NAME + "@v2"), "HTTP 404", 'no revision "v2"')


def test_shards_are_those_of_the_index(hub, home):
    files = {n: d for n, d in model_files().items() if n != WEIGHTS}
    data = model_files()[WEIGHTS]
    length = int.from_bytes(data[:8], "little")
    names = [n for n in json.loads(data[8:8 + length]) if n != "__metadata__"]
    shard = "model-00001-of-00001.safetensors"
    files[shard] = data
    files["model.safetensors.index.json"] = json.dumps(
        {"weight_map": {name: shard for name in names}}).encode()
    files["consolidated.safetensors"] = data  # the same weights once more
    hub.repositories[NAME] = Repository(files)
    hub.repositories[NAME].lists_files = False  # the tree tells them
    result = pull(home, hub)
    assert result.returncode == 0, result.stderr
    assert (snapshot(home) / shard).exists()
    assert not (snapshot(home) / "consolidated.safetensors").exists()
    del files[shard]
    expect_error(pull(home / "other", hub), "model.safetensors.index.json names " + shard)


def test_the_token_goes_to_the_endpoint_alone(hub, home):
    hub.repositories[NAME].token = hub.token
    (home / "other").mkdir(parents=True)
    (home / "token").write_text(hub.token + "\n")
    for more, at in (({"HF_TOKEN": hub.token}, home / "other"), ({}, home)):
        result = pull(at, hub, **more)
        assert result.returncode == 0, result.stderr
    api = [headers for _, _, headers in hub.api.requests]
    assert all(headers["Authorization"] == "Bearer " + hub.token for headers in api)
    assert hub.storage.requests
    assert not any("Authorization" in headers for _, _, headers in hub.storage.requests)
    expect_error(pull(home, hub, HF_TOKEN="hf_a\nHost: b"), "HF_TOKEN: not a token")


def test_refusals_say_what_to_do(hub, home):
    page = f"{hub.url}/{NAME}"
    expect_error(pull(home, hub, "some-org/none"), "some-org/none", "HTTP 401", "no such model",
                 "HF_TOKEN", str(home / "token"))
    expect_error(pull(home, hub, "some-org/none", HF_TOKEN=hub.token), "HTTP 404", "no such model")
    expect_error(pull(home, hub, HF_TOKEN="hf_old"), "HTTP 401", "token in HF_TOKEN",
                 "not accepted")
    hub.repositories[NAME].gated = True
    expect_error(pull(home, hub), "HTTP 401", "gated", "accept its terms at " + page, "HF_TOKEN")
    expect_error(pull(home, hub, HF_TOKEN=hub.token), "HTTP 403", "gated", page)
    hub.faults.statuses = [403]
    expect_error(pull(home, hub), "HTTP 403: access is forbidden")
    expect_error(winnow("inspect", "assets/nowhere", env=environment(home, hub)),
                 "assets/nowhere: no such directory; HTTP 401: ", "no such model")
    expect_error(winnow("pull", "nothing", env=environment(home, hub)), "expected org/name")
    assert_nothing_half_there(home)


def test_repositories_without_safetensors(hub, home):
    hub.repositories[NAME] = Repository({"config.json": b"{}", "pytorch_model.bin": b"pickled"})
    expect_error(pull(home, hub), "no weights in safetensors")
    hub.repositories[NAME] = Repository({"config.json": b"{}", "mmproj-F16.gguf": b"GGUF"})
    expect_error(pull(home, hub), "no weights in safetensors")


def test_broken_transfers_go_on(hub, home):
    hub.faults = Faults(break_after=50_000, breaks=6)
    result = pull(home, hub)
    assert result.returncode == 0, result.stderr
    assert {"bytes=50000-", "bytes=100000-"} <= set(ranges(hub))
    for name, data in model_files().items():
        assert (snapshot(home) / name).read_bytes() == data


def test_busy_servers_are_asked_again(hub, home):
    hub.faults.statuses = [503, 429]
    assert pull(home, hub).returncode == 0
    hub.faults.statuses = [503] * 100
    expect_error(pull(home, hub), "HTTP 503, again and again")


def test_wrong_sums(hub, home):
    for name, etag in ((WEIGHTS, "a" * 64), ("config.json", "b" * 40)):
        hub.repositories[NAME].etags = {name: etag}
        expect_error(pull(home, hub), name, "checksum", etag)
        assert_nothing_half_there(home)
    hub.repositories[NAME].etags = {"config.json": "../../evil"}
    expect_error(pull(home, hub), "config.json", "no checksum")


def prepare_part(home, hub, content):
    """What an earlier run left of the weights."""
    blobs = repository_folder(home) / "blobs"
    blobs.mkdir(parents=True)
    (blobs / (sha256(model_files()[WEIGHTS]) + ".incomplete")).write_bytes(content)


@pytest.mark.parametrize("ignore_ranges", [False, True])
def test_parts_of_earlier_runs_are_continued(hub, home, ignore_ranges):
    weights = model_files()[WEIGHTS]
    prepare_part(home, hub, weights[:100_000])
    hub.faults.ignore_ranges = ignore_ranges
    assert pull(home, hub).returncode == 0
    assert hub.storage.requests[-1][2]["Range"] == "bytes=100000-"
    assert (snapshot(home) / WEIGHTS).read_bytes() == weights


@pytest.mark.parametrize("content", [b"x" * 1000, b"x" * 1_000_000])
def test_damaged_parts_are_not(hub, home, content):
    prepare_part(home, hub, content)
    result = pull(home, hub)
    assert result.returncode == 0, result.stderr
    assert (snapshot(home) / WEIGHTS).read_bytes() == model_files()[WEIGHTS]


def test_a_full_disk(hub, home):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))

    result = winnow("pull", NAME, env=environment(home, hub), preexec_fn=limit)
    expect_error(result, "cannot write", "100000 of", "are kept")
    assert_nothing_half_there(home)
    assert pull(home, hub).returncode == 0
    assert "bytes=100000-" in ranges(hub)


def has_data(path):
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:  # complete and renamed since the folder was read
        return False


def wait_for_part(home):
    part = repository_folder(home) / "blobs" / f"{sha256(model_files()[WEIGHTS])}.incomplete"
    for _ in range(1000):
        if has_data(part):
            return
        time.sleep(0.01)
    raise AssertionError("no download began")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_downloads_are_kept(hub, home, how):
    hub.faults.slowly = 0.2  # so slow that the signal comes first, also on a busy machine
    with subprocess.Popen([BINARY, "pull", NAME], env=environment(home, hub),
                          stderr=subprocess.DEVNULL) as process:
        wait_for_part(home)
        process.send_signal(how)
        assert process.wait(20) == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert_nothing_half_there(home)
    hub.faults.slowly = 0.0
    assert pull(home, hub).returncode == 0
    assert ranges(hub)


def test_two_pulls_at_once_share_the_work(hub, home):
    hub.faults.slowly = 0.001
    both = [subprocess.Popen([BINARY, "pull", NAME], env=environment(home, hub), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out.strip() == str(snapshot(home))
    assert len(asked_for(hub, sha256(model_files()[WEIGHTS]))) == 1


def test_offline(hub, home):
    offline = environment(home, hub, HF_HUB_OFFLINE="1")
    expect_error(winnow("inspect", NAME, env=offline), NAME, "HF_HUB_OFFLINE", "not in the cache")
    expect_error(winnow("pull", NAME, env=offline), NAME, "HF_HUB_OFFLINE", "on another machine")
    assert not hub.requests()
    assert pull(home, hub).returncode == 0
    assert winnow("inspect", NAME, env=offline).returncode == 0
    hub.close()
    assert winnow("inspect", NAME, env=environment(home, hub)).returncode == 0
    expect_error(winnow("inspect", "some-org/other", env=environment(home, hub)),
                 "some-org/other: no such directory, and not in the cache",
                 "; the Hub cannot be reached")
    expect_error(winnow("pull", "some-org/other", env=environment(home, hub)),
                 "some-org/other", "cannot be reached", "on another machine")


def python(code, env):
    result = subprocess.run([sys.executable, "-c", code, NAME], env=env, capture_output=True,
                            text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_huggingface_hub_finds_what_winnow_downloaded(hub, home):
    assert pull(home, hub).returncode == 0
    found = python("""
import sys, huggingface_hub
print(huggingface_hub.snapshot_download(sys.argv[1]))
huggingface_hub.hf_hub_download(sys.argv[1], "model.safetensors")
report = huggingface_hub.scan_cache_dir()
assert not report.warnings and len(report.repos) == 1, report
""", environment(home, hub, HF_HUB_OFFLINE="1"))
    assert pathlib.Path(found) == snapshot(home)


def test_winnow_finds_what_huggingface_hub_downloaded(hub, home):
    python("import sys, huggingface_hub; huggingface_hub.snapshot_download(sys.argv[1])",
           environment(home, hub))
    result = winnow("inspect", NAME, env=environment(home, hub, HF_HUB_OFFLINE="1"))
    assert result.returncode == 0, result.stderr


def test_what_huggingface_hub_began_winnow_completes(hub, home):
    python("import sys, huggingface_hub as h; h.hf_hub_download(sys.argv[1], 'config.json')",
           environment(home, hub))
    result = winnow("eval", "latency", "--model", NAME, env=environment(home, hub))
    assert result.returncode == 0, result.stderr
    assert (snapshot(home) / WEIGHTS).exists()


GGUF_NAME = "some-org/tiny-GGUF"
GGUF_FILES = {"README.md": b"# tiny", "tiny-Q4_K_M.gguf": b"GGUF four", "tiny-Q8_0.gguf": b"GGUF eight",
              "mmproj-F16.gguf": b"GGUF eyes",
              "BF16/tiny-BF16-00001-of-00002.gguf": b"GGUF first",
              "BF16/tiny-BF16-00002-of-00002.gguf": b"GGUF second"}


@pytest.fixture
def gguf_hub(hub):
    hub.repositories[GGUF_NAME] = Repository(GGUF_FILES)
    return hub


def gguf_snapshot(home):
    return home / "hub" / ("models--" + GGUF_NAME.replace("/", "--")) / "snapshots" / COMMIT


@pytest.mark.parametrize("choice, files", [
    ("", ["tiny-Q4_K_M.gguf"]),
    (":q8_0", ["tiny-Q8_0.gguf"]),
    (":tiny-Q8_0.gguf", ["tiny-Q8_0.gguf"]),
    ("@main:BF16", ["BF16/tiny-BF16-00001-of-00002.gguf", "BF16/tiny-BF16-00002-of-00002.gguf"]),
])
def test_a_gguf_file_of_a_repository(gguf_hub, home, choice, files):
    result = pull(home, gguf_hub, GGUF_NAME + choice)
    assert result.returncode == 0, result.stderr
    assert pathlib.Path(result.stdout.strip()) == gguf_snapshot(home) / files[0]
    shown = [path for path in gguf_snapshot(home).rglob("*") if path.is_file()]
    assert sorted(str(p.relative_to(gguf_snapshot(home))) for p in shown) == files
    for file in files:
        assert (gguf_snapshot(home) / file).read_bytes() == GGUF_FILES[file]


def test_a_gguf_file_by_name_in_place_of_a_directory(gguf_hub, home):
    env = environment(home, gguf_hub)
    for name in (GGUF_NAME, GGUF_NAME + ":Q4_K_M"):
        result = winnow("eval", "latency", "--model", name, env=env)
        expect_error(result, str(gguf_snapshot(home) / "tiny-Q4_K_M.gguf"))  # no whole file
    count = len(gguf_hub.requests())
    winnow("inspect", GGUF_NAME + ":Q4_K_M", env=env)
    assert len(gguf_hub.requests()) == count  # it is there
    winnow("eval", "latency", "--model", GGUF_NAME + ":Q8_0", env=env)
    assert (gguf_snapshot(home) / "tiny-Q8_0.gguf").exists()
    offline = environment(home, gguf_hub, HF_HUB_OFFLINE="1")
    expect_error(winnow("inspect", GGUF_NAME + ":Q8_0", env=offline), "tiny-Q8_0.gguf")
    expect_error(winnow("inspect", GGUF_NAME + ":BF16", env=offline), "BF16 names none")


def test_a_gguf_type_that_is_not_there(gguf_hub, home):
    result = pull(home, gguf_hub, GGUF_NAME + ":Q2_K")
    expect_error(result, GGUF_NAME + ": Q2_K names none of its GGUF files", "tiny-Q8_0.gguf")
    assert not gguf_snapshot(home).exists()
    expect_error(pull(home, gguf_hub, NAME + ":Q4_K_M"), "there are no GGUF files")


PROBE = ROOT / "tests/fixtures/probes/kvzap-linear"
PROBE_NAME = "some-org/KVzap-linear-tiny"


def test_a_probe_by_name(hub, home):
    files = {name: (PROBE / name).read_bytes() for name in ("config.json", WEIGHTS)}
    hub.repositories[PROBE_NAME] = Repository(files)
    model = ROOT / "tests/fixtures/models/qwen3"
    env = environment(home, hub)
    result = winnow("inspect", str(model), "--probe", PROBE_NAME, "--json", env=env)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["retrofit"]["window"] == 128
    count = len(hub.requests())
    assert winnow("inspect", str(model), "--probe", PROBE_NAME, env=env).returncode == 0
    assert len(hub.requests()) == count  # it is there

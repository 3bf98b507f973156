from dataclasses import replace

import pytest

from autoplan import presence
from autoplan.cluster import parse_cluster
from autoplan.errors import DeviceError
from autoplan.presence import CudaDevice, require_present


@pytest.fixture
def two_gpus(monkeypatch):
    found = (CudaDevice(0, "NVIDIA A100-SXM4-80GB", 85 * 10**9), CudaDevice(1, "Acme G1", 10**10))
    monkeypatch.setattr("autoplan.presence.cuda_devices", lambda: found)
    monkeypatch.setattr("autoplan.devicestring.cuda_devices", lambda: found)


def test_cpu_workers_are_always_here():
    require_present(parse_cluster("3xcpu"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tpu_v4", "cannot run workers on devices of kind 'tpu'"),
        ("2x1xcpu", "spans 2 hosts .* torchrun"),
        ("epyc_9654", "this machine's processor is"),
        ("h100", "cuda:0 is NVIDIA A100-SXM4-80GB"),
        ("2xa100", "cuda:1 is Acme G1"),
    ],
)
def test_what_is_elsewhere_is_for_planning(two_gpus, monkeypatch, text, message):
    monkeypatch.setattr(presence, "processor_title", lambda: "Pentium")
    with pytest.raises(DeviceError, match=message):
        require_present(parse_cluster(text))


def test_what_is_here_can_run(two_gpus, monkeypatch):
    require_present(parse_cluster("a100"))
    require_present(parse_cluster("2xcuda"))
    monkeypatch.setattr(presence, "processor_title", lambda: "AMD EPYC 9654 96-Core Processor")
    require_present(parse_cluster("epyc_9654"))


def test_no_gpu_at_all(monkeypatch):
    monkeypatch.setattr(presence, "cuda_devices", lambda: ())
    cluster = parse_cluster("a100")
    with pytest.raises(DeviceError, match="no CUDA device that torch can see"):
        require_present(replace(cluster, text=""))


def test_the_processor_is_read_from_linux(tmp_path):
    assert presence.processor_title(tmp_path) == ""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        "processor\t: 0\nmodel name\t: AMD EPYC 9654\nflags\t:\n"
    )
    assert presence.processor_title(tmp_path) == "AMD EPYC 9654"


def test_without_a_driver_no_one_is_asked_for_cuda_devices(tmp_path, monkeypatch):
    monkeypatch.setattr(presence.subprocess, "run", None)
    assert presence.cuda_devices_apart(tmp_path) == ()


def test_a_python_of_its_own_is_asked_where_there_is_a_driver(tmp_path, monkeypatch):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    answer = 'print(\'a banner\'); print(\'[{"index": 0, "title": "Acme G1", "memory_bytes": 7}]\')'
    monkeypatch.setattr(presence, "_ASK", answer)
    assert presence.cuda_devices_apart(tmp_path) == (CudaDevice(0, "Acme G1", 7),)


def test_the_question_is_the_one_of_this_process(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    assert presence.cuda_devices_apart(tmp_path) == presence.cuda_devices()


def test_asking_in_vain_is_no_device(tmp_path, monkeypatch, caplog):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    monkeypatch.setattr(presence, "_ASK", "raise SystemExit(3)")
    assert presence.cuda_devices_apart(tmp_path) == ()
    assert "cannot ask torch" in caplog.text

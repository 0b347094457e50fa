"""The fixtures that other tests stand on."""

from pathlib import Path

import pytest
import torch
from accelerate import Accelerator, PartialState
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

HERE = Path(__file__).parent


def rank_and_sum(offset: int) -> tuple[int, float, int]:
    accelerator = Accelerator()
    mine = torch.tensor(float(accelerator.process_index + offset))
    return (
        accelerator.process_index,
        accelerator.reduce(mine).item(),
        torch.get_num_threads(),
    )


def test_two_processes_return_in_rank_order_and_talk_to_each_other(two_processes):
    assert two_processes(rank_and_sum, 10) == [(0, 21.0, 1), (1, 21.0, 1)]


def test_two_processes_run_even_where_the_test_has_an_accelerator_already(two_processes):
    assert Accelerator(cpu=True).num_processes == 1
    assert two_processes(lambda: PartialState().num_processes) == [2, 2]


def test_two_processes_can_be_launched_twice(two_processes):
    assert two_processes(lambda: PartialState().process_index) == [0, 1]
    assert two_processes(lambda: PartialState().process_index + 5) == [5, 6]


def test_a_failure_of_the_second_rank_fails_the_test(two_processes):
    def fail_on_rank_1() -> None:
        if PartialState().process_index == 1:
            raise ValueError("only here")
        torch.distributed.barrier()

    with pytest.raises(ProcessRaisedException, match="ValueError: only here"):
        two_processes(fail_on_rank_1)


def test_a_rank_that_hangs_is_ended_and_says_where(two_processes, capfd):
    def hang_on_rank_0() -> None:
        if PartialState().process_index == 1:
            torch.distributed.barrier()
        while True:
            pass

    with pytest.raises(ProcessExitedException):
        two_processes(hang_on_rank_0, timeout=0.5)
    assert "in hang_on_rank_0" in capfd.readouterr().err


def test_a_wrong_number_of_processes_fails(two_processes, monkeypatch):
    monkeypatch.setattr(
        "conftest.debug_launcher", lambda function, args, num_processes: function(*args)
    )
    with pytest.raises(AssertionError, match="1 processes instead of 2"):
        two_processes(lambda: None)


@pytest.mark.parametrize("attempt", [1, 2])
def test_each_test_starts_seeded_and_without_accelerate_state(attempt):
    assert not PartialState._shared_state
    assert torch.rand(()).item() == pytest.approx(0.4962566)
    Accelerator(cpu=True, gradient_accumulation_steps=attempt)


def test_cpu_accelerator(cpu_accelerator):
    assert cpu_accelerator.device.type == "cpu"
    assert not cpu_accelerator.step_scheduler_with_optimizer


# --- skips ---------------------------------------------------------------------------------------

SKIPS = """
import pytest

def test_package():
    pytest.skip("needs: some-package (apt-get install some-package)")

@pytest.mark.skipif(True, reason="needs: some-package-extra")
def test_mark():
    pass

@pytest.mark.gpu
def test_gpu():
    pass

@pytest.mark.network
def test_network():
    pass

@pytest.mark.xfail
def test_expected():
    raise ValueError
"""


@pytest.fixture
def run_tests(pytester, monkeypatch):
    """Run tests, given as text, under this suite's own conftest.py."""

    def run(text: str, installed: str = "", network: str = "") -> pytest.RunResult:
        monkeypatch.setenv("GAN_TESTS_INSTALLED", installed)
        monkeypatch.setenv("GAN_TESTS_NETWORK", network)
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        pytester.makeconftest((HERE / "conftest.py").read_text())
        pytester.makeini("[pytest]\nmarkers = gpu\n  network")
        pytester.makepyfile(text)
        return pytester.runpytest_inprocess("-rs")

    return run


def test_skips_say_what_is_needed(run_tests):
    result = run_tests(SKIPS)
    result.assert_outcomes(skipped=4, xfailed=1)
    result.stdout.fnmatch_lines(["*needs: a GPU", "*needs: the network (GAN_TESTS_NETWORK=1)"])


def test_a_skip_for_want_of_what_was_installed_is_a_failure(run_tests):
    result = run_tests(SKIPS, installed="other some-package")
    result.assert_outcomes(failed=1, skipped=3, xfailed=1)
    result.stdout.fnmatch_lines(["*skipped although some-package is installed: *"])


def test_network_tests_run_where_asked_for(run_tests):
    run_tests(SKIPS, network="1").assert_outcomes(passed=1, skipped=3, xfailed=1)


@pytest.mark.parametrize(
    "skip",
    ["pytest.importorskip('no_such_module')", "pytest.skip('later', allow_module_level=True)"],
)
@pytest.mark.parametrize("where", ["module", "test"])
def test_a_skip_without_a_need_is_a_failure(run_tests, skip, where):
    body = f"{skip}\ndef test(): pass" if where == "module" else f"def test():\n    {skip}"
    result = run_tests(f"import pytest\n{body}")
    result.assert_outcomes(errors=int(where == "module"), failed=int(where == "test"))
    result.stdout.fnmatch_lines(["*a skip says what it needs*"])


def test_fashion_mnist_is_a_folder_or_a_need(requires_fashion_mnist):
    assert (requires_fashion_mnist / "train-images-idx3-ubyte.gz").is_file()

"""`with profile()` inside a script."""

import textwrap
from pathlib import Path

from capture.launch.launching import assert_whole
from recording import torchrun

from fsdp_profile.analysis.run import load_run
from fsdp_profile.core.schema import Strategy


def test_a_script_records_itself_and_tells_its_steps(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(f"""
        import torch, torch.distributed as dist
        from torch import nn
        from torch.distributed.fsdp import fully_shard
        from fsdp_profile.capture import profile
        from fsdp_profile.core.errors import UsageError
        try:
            with profile():
                pass
        except UsageError as e:
            print(e)
        dist.init_process_group("gloo")
        with profile({str(tmp_path / "run")!r}, by_hand=True, kineto=False) as recording:
            model = fully_shard(nn.Linear(64, 64, bias=False))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                for _ in range(2):
                    model(torch.ones(4, 64)).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                recording.step()
            try:
                with profile():
                    pass
            except UsageError as e:
                print(e)
        print(model(torch.ones(4, 64)).shape)
        dist.destroy_process_group()
        """)
    )
    done = torchrun("--nproc-per-node=1", str(script))
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            "profile(): there is no process group; enter it after torch.distributed.init_process_group",
            "profile(): this process is already being recorded; a process has one recording",
            "torch.Size([4, 64])",
        ],
    ), done.stderr
    assert_whole(load_run(tmp_path / "run"), ranks=1, steps=3, strategy=Strategy.FSDP2)

"""The option that asks a script for the CPU is found in its syntax tree."""

from __future__ import annotations

import pytest

from anymps.source import cpu_option


@pytest.mark.parametrize(
    ("call", "option"),
    [
        ('parser.add_argument("--no-cuda", action="store_true")', "--no-cuda"),
        ('parser.add_argument("--disable_gpu", action="store_true")', "--disable_gpu"),
        ('parser.add_argument("--cuda", action="store_true")', ""),
        ('parser.add_argument("-d", "--device", default="cuda:0", help="where")', "--device cpu"),
        ('parser.add_argument("--device", choices=["cuda", "cpu", "mps"])', "--device cpu"),
        ('parser.add_argument("--device", choices=["cuda", "mps"])', ""),
        ('parser.add_argument("--gpu", type=int, default=0)', "--gpu -1"),
        ('parser.add_argument("--gpu_id", default=-1)', "--gpu_id -1"),
        ('parser.add_argument("--gpu_id", default="-1")', "--gpu_id -1"),
        ('parser.add_argument("--gpu_id", default="all")', "--gpu_id cpu"),
        ('parser.add_argument("--gpu_ids", default="0,1")', "--gpu_ids -1"),
        ('parser.add_argument("--cuda", action=argparse.BooleanOptionalAction)', "--no-cuda"),
        ('click.option("--cuda/--no-cuda", default=True)', "--no-cuda"),
        ('click.option("--cpu/--gpu", default=True)', "--cpu"),
        ('click.option("--cpu", is_flag=True)', "--cpu"),
        ('click.option("--no-cpu", is_flag=True)', ""),
        ('click.option("--device", type=click.Choice(["cpu", "cuda"]))', "--device cpu"),
        ('parser.add_argument("--lr", type=float)', ""),
        ('parser.add_argument("--num-gpus", type=int)', ""),
        ('parser.add_argument("device")', ""),
        ('parser.add_argument("--device", action="version")', ""),
    ],
)
def test_an_option_that_names_a_device(call: str, option: str) -> None:
    """With a word after which the model is on the CPU; none if it asks for a GPU alone."""
    assert " ".join(cpu_option([call])) == option


def test_options_of_several_files() -> None:
    """The first that asks for the CPU; not what the command line has already."""
    texts = [
        "from options import p\n",
        'p.add_argument("--no-cuda", action="store_true")\np.add_argument("--device")\n',
    ]
    for given, option in (((), "--no-cuda"), (("--no-cuda",), "--device cpu"), (("--device=cuda", "--no-cuda"), "")):
        assert " ".join(cpu_option(texts, given)) == option

"""What to do about a wait in every step, in words of the line that makes it."""

from __future__ import annotations

import pytest

from anymps.findings import find
from anymps.findings.edits import Safety
from anymps.record import Phase, RecordingBuilder, Wait
from findings.advised import advice

TOGETHER = (
    "Keep the values of several steps as tensors, and read them at once: `torch.stack(values).tolist()` is one wait. "
    "Compute on the CPU what the program needs as a number in every step."
)
SIZE = (
    "A size or an index is a Python number: compute it on the CPU. Or: Keep the mask instead of indexing: a sum "
    "is `torch.where(mask, x, 0).sum()`, a mean is that divided by `mask.sum()`."
)
SELDOM = ". If the test only reports or ends the run: test the count every 10 steps or once an epoch."
DECIDE = "Decide on the device with `torch.where`. If the test only reports or ends the run: test every 10 steps."


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        (
            "running += loss.item()",
            "Add up on the device, `running = running + loss.detach()`, and read `running` every 10 steps or after the "
            "loop.",
        ),
        (
            "self.total += float(loss) * len(x)  # mean",
            "Add up on the device, `self.total = self.total + loss.detach() * len(x)`, and read `self.total` every 10 "
            "steps or after the loop.",
        ),
        (
            "correct += (pred == y).sum().item()",
            "Add up on the device, `correct = correct + (pred == y).sum()`, and read `correct` every 10 steps or after "
            "the loop.",
        ),
        (
            "total += float(a + b)",
            "Add up on the device, `total = total + (a + b).detach()`, and read `total` every 10 steps or after the "
            "loop.",
        ),
        (
            "losses.append(loss.detach().item())",
            "Write `losses.append(loss.detach())`, and after the loop join `losses` and read them at once: one wait.",
        ),
        (
            "norm = clip_grad_norm_(model.parameters(), 1.0).item()",
            "Keep the tensor, `norm = clip_grad_norm_(model.parameters(), 1.0).detach()`, and read it only where the "
            "number itself is needed; a log needs it every 10 steps.",
        ),
        (
            "scale = loss.item() / math.sqrt(width)",
            "Keep the tensor, `scale = loss.detach() / math.sqrt(width)`, and read it only where the number itself is "
            "needed; a log needs it every 10 steps.",
        ),
        (
            "return (logits.argmax(1) == y).float().mean().item()",
            "Return the tensor, `return (logits.argmax(1) == y).float().mean()`, and read it only where the number "
            "itself is needed; a log needs it every 10 steps.",
        ),
        (
            "return loss.item(), acc.item()",
            "Return the tensors, `return loss.detach(), acc.detach()`, and read them only where the number itself is "
            "needed; a log needs it every 10 steps.",
        ),
        (
            'group["lr"] = lr.item()',
            "An optimizer's setting is a Python number: compute it from Python numbers, without a tensor.",
        ),
        ("x = x[: lengths.max().item()]", SIZE),
        ("history.update(loss=loss.item(), norm=norm.item())", TOGETHER),
        ("total += loss.item(", TOGETHER),
        ("allowed.remove(y.item())", TOGETHER),
        ("losses[step] = loss.item()", TOGETHER),  # of an array, which takes no tensor on mps
        ("counts[i] += hits.item()", TOGETHER),
        ("name = f'{loss.item():.3f}'", TOGETHER),
        ("best = max(best, loss.item())", TOGETHER),
    ],
)
def test_a_value_that_is_kept(source: str, fix: str) -> None:
    """MPS201: the user's own line without the read, and when to read instead; else the general words."""
    finding = advice(source)
    assert (finding.id, finding.fix) == ("MPS201", fix)


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        (
            "if p.grad is not None and not torch.isfinite(p.grad).all():",
            f"Count what is not finite on the device{SELDOM}",
        ),
        (
            "if (a != b).any():",
            "To choose values use `torch.where`. If the test only reports or ends the run: keep the answer on the "
            "device, `seen = seen | (a != b).any()`, and test it every 10 steps.",
        ),
        ("while error > 0.1:", DECIDE),
        ("assert loss.item() < 10", DECIDE),
    ],
)
def test_a_decision_by_a_value(source: str, fix: str) -> None:
    """MPS201: checks for NaN, comparisons and loops each have a way to stay on the device."""
    finding = advice(source)
    assert (finding.id, finding.fix) == ("MPS201", fix)


@pytest.mark.parametrize(
    ("source", "via", "what", "fix"),
    [
        (
            "clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)",
            "torch/nn/utils/clip_grad.py:_get_total_norm",
            "clip_grad_norm_ checked whether the norm is finite once a step.",
            "Leave `error_if_nonfinite=True` out: the norm then stays on the device. Test it every 10 steps.",
        ),
        (
            "scaler.step(optimizer)",
            "torch/amp/grad_scaler.py:<genexpr>",
            "GradScaler read whether a gradient was infinite once a step.",
            "Train in bfloat16 or float32, which need no GradScaler.",
        ),
        (
            "scheduler.step(loss)",
            "torch/optim/lr_scheduler.py:step",
            "The learning rate's scheduler read its metric once a step.",
            "Step it once an epoch, with the epoch's mean: `scheduler.step(total / steps)`. Its `patience` then "
            "counts epochs.",
        ),
        (
            "optimizer.step(closure)",
            "torch/optim/lbfgs.py:step",
            "LBFGS read its loss and its directions back once a step.",
            "LBFGS decides on the host in each iteration. An optimizer that does not, such as AdamW, needs no wait.",
        ),
        (
            "target = F.one_hot(labels).float()",
            "",
            "`one_hot` read the largest class once a step.",
            "Pass `num_classes=`: the result's size is then known without a read.",
        ),
    ],
)
def test_reads_of_torch_itself(source: str, via: str, what: str, fix: str) -> None:
    """MPS201: what a function of torch reads is told by the function."""
    finding = advice(source, via=via)
    assert (finding.id, finding.what, finding.fix) == ("MPS201", what, fix)


def test_a_metric_of_a_library() -> None:
    """MPS201: a metric that reads within its library's own file."""
    finding = advice("if unique_values.any():", file="/venv/site-packages/torchmetrics/functional/stat_scores.py")
    assert (finding.what, finding.fix) == (
        "A metric of torchmetrics read a value once a step.",
        "Update the metric on the device, and compute it once an epoch, and leave out its checks of the values: "
        "`validate_args=False`.",
    )


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        ("print(loss.item())", "Print or log every 10 steps."),
        ("bar.set_postfix(loss=loss.item())", "Set it every 10 steps."),
        (
            "self.log('loss', loss.item())",
            "Hand the tensor over, `self.log('loss', loss.detach())`: Lightning keeps it on the device and reads it "
            "every `log_every_n_steps`.",
        ),
        ("text = print(", "Print or log every 10 steps."),
    ],
)
def test_a_value_that_is_shown(source: str, fix: str) -> None:
    """MPS202: logging every so many steps; in words alone where the loop's counter is not known."""
    finding = advice(source)
    assert (finding.id, finding.fix) == ("MPS202", fix)


@pytest.mark.parametrize(
    ("loop", "source", "fix"),
    [
        ("for i, x in enumerate(loader):", "print(loss.item())", ": `if i % 10 == 0: print(loss.item())`."),
        ("for k in tqdm(range(9)):", "print(loss, k)", ": `if k % 10 == 0: print(loss, k)`."),
        ("for _ in range(9):", "print(loss)", "."),
        ("for _, x in enumerate(loader):", "print(loss)", "."),
        ("for x in loader:", "print(loss.item())", "."),
        ("while True:", "print(loss.item())", "."),
    ],
)
def test_the_loops_own_counter(loop: str, source: str, fix: str) -> None:
    """MPS202: the counter is read off the loop's head, where the recording holds it; there is none by default."""
    finding = advice(source, around=f"{loop}\n    loss = train(x)\n    {source}")
    assert finding.fix == f"Print or log every 10 steps{fix}"


@pytest.mark.parametrize(
    ("head", "after"),
    [
        ("import torch as th", "`th.stack(losses).tolist()`"),
        ("loss = torch.ones(3)", "`torch.stack(losses).tolist()`"),
        ("loss = f(x)", "join `losses` and read them at once"),
    ],
)
def test_torch_by_its_own_name(head: str, after: str) -> None:
    """A line for later names torch as the file does; where that is not known it is told in words."""
    finding = advice("losses.append(loss.item())", around=f"{head}\n\nlosses.append(loss.item())")
    assert finding.fix == f"Write `losses.append(loss.detach())`, and after the loop {after}: one wait."


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        (
            "losses.append(loss.detach().cpu())",
            "Write `losses.append(loss.detach())`, and after the loop join `losses` and read them at once: one wait.",
        ),
        (
            "preds.extend(out.softmax(1)[:, 1].detach().cpu().numpy())",
            "Write `preds.append(out.softmax(1)[:, 1].detach())`, and after the loop join `preds` and read them at "
            "once: one wait.",
        ),
        (
            "scores.extend(out.max(-1).values.tolist())",
            "Write `scores.append(out.max(-1).values.detach())`, and after the loop join `scores` and read them at "
            "once: one wait.",
        ),
        (
            "total += loss.cpu()",
            "Add up on the device, `total = total + loss.detach()`, and read `total` every 10 steps or after the loop.",
        ),
        (
            "ema[k] = ema[k] * 0.99 + v.cpu() * 0.01",
            (
                "Compute it on the device, `ema[k] = ema[k] * 0.99 + v.detach() * 0.01`, with its tensors moved there "
                "before the loop."
            ),
        ),
        (
            "f1 += f1_score(y.cpu(), pred.cpu())",
            "Count on the device, `correct = correct + (prediction == target).sum()`, or score all of an epoch at "
            "once.",
        ),
        (
            "return self.actor(state).cpu().data.numpy().flatten()",
            "Return the tensor, and copy it where the CPU needs it. One copy for each call stays where the caller goes "
            "on by the value, as with the action of an agent.",
        ),
        (
            "labels = data.y.cpu().numpy()",
            "If the values never change, copy them once, before the loop. If the CPU goes on with them at once, copy "
            "less often, and together what is needed together. Otherwise keep the tensor, and copy it after the loop.",
        ),
        (
            "send(x.cpu(), y.cpu())",
            "Keep results on the device, `.detach()`, and read them together every 10 steps or after the loop.",
        ),
    ],
)
def test_a_copy_to_the_cpu(source: str, fix: str) -> None:
    """MPS204: collecting on the device, and scores of a whole epoch."""
    finding = advice(source, Wait.COPY_TO_CPU, operator="aten::copy_")
    assert (finding.id, finding.fix) == ("MPS204", fix)


def test_a_copy_in_a_sum_over_several_lines() -> None:
    """MPS204: the whole statement says what becomes of the value."""
    text = "correct += (lam * predicted.eq(a).cpu().sum()\n            + (1 - lam) * predicted.eq(b).cpu().sum())"
    finding = advice(text.splitlines()[0], Wait.COPY_TO_CPU, operator="aten::copy_", around=f"x = 1\ny = 2\n{text}")
    assert finding.fix == (
        "Add up on the device, `correct = correct + (lam * predicted.eq(a).detach().sum() + (1 - lam) * "
        "predicted.eq(b).detach().sum())`, and read `correct` every 10 steps or after the loop."
    )


def test_a_sequence_that_is_sorted_back() -> None:
    """MPS204: the copy is torch's own, and ends with a setting where the sequence is packed."""
    via = "torch/nn/utils/rnn.py:pad_packed_sequence"
    finding = advice("h, _ = pad_packed_sequence(h)", Wait.COPY_TO_CPU, operator="aten::copy_", via=via)
    assert (finding.id, finding.fix) == (
        "MPS204",
        (
            "Sort the batch by length, longest first, and pass `enforce_sorted=True` to `pack_padded_sequence`: "
            "nothing "
            "is then sorted back."
        ),
    )


def test_an_allocation_that_did_not_fit() -> None:
    """MPS206: an allocator that has to drain the queue in every step is about memory, not about empty_cache()."""
    finding = advice("loss.backward()", Wait.EMPTY_CACHE, operator="anymps::allocator")
    assert (finding.id, finding.what, finding.fix) == (
        "MPS206",
        "An allocation that did not fit made the host wait, and gave all cached memory back once a step.",
        "Use a smaller batch with gradient accumulation, shorter sequences, or activation checkpointing.",
    )


def test_anomaly_detection() -> None:
    """MPS201: one finding for all lines whose gradients are searched; a line that reads has its own."""
    builder = RecordingBuilder(meta={"torch_version": "2.13.0"})
    lines = ("x = self.up(x)", "return self.down(x)", "return grad * self.scale.item()")
    for step in range(5):
        backward = builder.site("train.py", 9, "main", "loss.backward()")
        if step == 0:
            builder.note("anomaly", start_ns=0, site=backward)
        for number, source in enumerate(lines):
            builder.entry(
                "aten::_local_scalar_dense", start_ns=100 * step + number, phase=Phase.BACKWARD, wait=Wait.ITEM,
                site=builder.site("model.py", 30 + number, "forward", source),
            )  # fmt: skip
        builder.end_step(100 * step + 100)
    searched, own = find(builder.close())
    assert own.what == "`.item()` made the host wait once a step."
    assert searched.what == (
        "Anomaly detection looked for NaN in the gradients twice a step, at 2 lines: this one costs most."
    )
    assert searched.fix == (
        "Switch it off unless you are looking for a NaN: `torch.autograd.set_detect_anomaly`, `detect_anomaly=True` "
        "of a "
        "Lightning Trainer. With `check_nan=False` it reads nothing, and still reports which forward failed."
    )
    assert [site.line for site in (searched.site, *searched.related_sites)] == [30, 31]


@pytest.mark.parametrize(
    ("source", "operator", "begins"),
    [
        (
            "loss = F.cross_entropy(logits[mask], y[mask])",
            "aten::index.Tensor",
            "For a classification loss, mark the",
        ),
        ("loss = criterion(logits[mask], y[mask])", "aten::_index_put_impl_", "For a classification loss, mark the"),
        (
            "total = scores[mask].sum()",
            "aten::index.Tensor",
            "If the mask stays the same, compute `index = mask.nonzero(",
        ),
        ("n = F.cross_entropy(logits, y) / torch.unique(y)", "aten::_unique2", "Use an operator whose result has a"),
    ],
)
def test_a_mask_that_selects(source: str, operator: str, begins: str) -> None:
    """MPS203: a masked loss over classes has `ignore_index`; other masks are kept as masks."""
    finding = advice(source, Wait.INSIDE_OPERATOR, operator=operator)
    assert finding.id == "MPS203"
    assert finding.fix.startswith(begins)


def test_a_mask_that_is_compared() -> None:
    """A layer that is not told whether its mask is causal compares it with one."""
    finding = advice("y = self.decoder(x, memory, mask)", via="torch/nn/modules/transformer.py:_detect_is_causal_mask")
    assert finding.what == "The layer compared its mask with a causal one once a step."
    assert finding.fix == (
        "Say which it is: `is_causal=True` for a causal mask, `is_causal=False` for another (`tgt_is_causal=`, "
        "`memory_is_causal=` of a decoder)."
    )


ENVIRONMENT = (
    "The environment runs on the CPU and needs its action at once, so one wait for each of its steps remains. If more "
    "is read there, join it before the copy. Several environments can share one batch of actions."
)
ACTING = "obs = torch.tensor(obs)\nlogits = policy(obs)\n{}\nobs, reward, done, _ = env.step(action)\n"
STORED = "obs = torch.tensor(obs)\nlogits = policy(obs)\n{}\nactions.append(action)\noptimizer.step(action)\n"


@pytest.mark.parametrize(
    ("source", "wait", "around", "acts"),
    [
        ("action = dist.sample().item()", Wait.ITEM, ACTING, True),
        ("action, value = policy(obs).cpu().numpy()", Wait.COPY_TO_CPU, ACTING, True),
        ("obs, reward, *_ = vec_env.step(action.cpu().numpy())", Wait.COPY_TO_CPU, "", True),
        ("action = dist.sample().item()", Wait.ITEM, STORED, False),
        ("loss_value = loss.item()", Wait.ITEM, ACTING, False),
        ("self.action = dist.sample().item()", Wait.ITEM, ACTING, False),  # not the name that is given
        ('print(dist.sample().item(), "env.step(action)")', Wait.ITEM, ACTING, False),  # a text
        ("action: int = dist.sample().item()", Wait.ITEM, ACTING, True),
        ("action = dist.sample().item()", Wait.ITEM, ACTING.replace("(action)", "(clip(self.low, action))"), True),
        ("action = dist.sample().item()", Wait.ITEM, ACTING.replace("env.", "self.envs."), True),
        ("action = dist.sample().item()", Wait.ITEM, ACTING.replace("env.step(", "inventory(env).step("), False),
    ],
)
def test_an_action_that_an_environment_needs(source: str, wait: Wait, around: str, acts: bool) -> None:
    """What goes to an environment at once cannot be collected for later: a line near it says where it goes."""
    operator = "aten::_local_scalar_dense" if wait is Wait.ITEM else "aten::copy_"
    finding = advice(source, wait, operator=operator, around=around.format(source))
    assert (finding.fix == ENVIRONMENT) is acts


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        (
            "buffers.append(parameter.grad.cpu())",
            (
                "Join the gradients into one flat tensor on the device, and copy that once: one wait instead of one "
                "per "
                "parameter."
            ),
        ),
        (
            'torch.save(model.state_dict(), "last.pt")',
            "Save once an epoch or every few hundred steps: a checkpoint has to read every weight.",
        ),
        (
            'save_checkpoint({"model": model.state_dict()}, best)',
            "Save once an epoch or every few hundred steps: a checkpoint has to read every weight.",
        ),
    ],
)
def test_a_copy_that_the_host_needs(source: str, fix: str) -> None:
    """Gradients and checkpoints have to be copied; how, and how often, is up to the program."""
    assert advice(source, Wait.COPY_TO_CPU, operator="aten::copy_").fix == fix


def test_what_only_looks_like_a_copy_that_the_host_needs() -> None:
    """A name in a text, and a method that is called alike."""
    for source in ('rows.append((x.cpu(), "x.grad", "torch.save(x)"))', "rows.append(self.graded.cpu())"):
        assert "one flat tensor" not in advice(source, Wait.COPY_TO_CPU, operator="aten::copy_").fix
        assert "checkpoint" not in advice(source, Wait.COPY_TO_CPU, operator="aten::copy_").fix


@pytest.mark.parametrize(
    ("source", "what", "fix"),
    [
        (
            "weights = alpha * torch.cumprod(1.0 - alpha + 1e-10, -1)[:, :-1]",
            "The backward of `cumprod` looked for zeros once a step.",
            "If all values are above 0, write `x.log().cumsum(dim).exp()`: its backward reads nothing.",
        ),
        (
            "p = x.prod(dim=1)",
            "The backward of `prod` looked for zeros once a step.",
            "If all values are above 0, write `x.log().sum(dim).exp()`: its backward reads nothing.",
        ),
    ],
)
def test_a_product_that_looks_for_zeros(source: str, what: str, fix: str) -> None:
    """The line itself reads nothing, its backward does."""
    finding = advice(source, phase=Phase.BACKWARD)
    assert (finding.what, finding.fix) == (what, fix)


@pytest.mark.parametrize(
    "source",
    [
        "total += loss.item()",
        "meter.total += loss.item()",
        "history.append(loss.item())",
        "best = loss.item()",
        "return loss.item()",
    ],
)
def test_a_number_that_is_kept_is_left_to_a_person(source: str) -> None:
    """A list, a file or an `if` of the script may need it: no machine makes a tensor of it."""
    edit = advice(source).edit
    assert (edit is not None, edit and edit.safety) == (True, Safety.ADVICE)

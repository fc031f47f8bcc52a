"""Test that programs compiled before are not compiled again, whatever asks for them."""

from tests.client.commands import Generate


def test_a_second_context_of_defaults_compiles_nothing(generate: Generate) -> None:
    repository = str(generate.folder / "repo")
    first = generate(kernel_repo_path=repository)
    compiled = first.summary["totals"]["compile_requests"]
    assert compiled > 0
    assert f"0 programs found, {compiled} compiled" in first.err
    content = first.context.read_bytes()
    again = generate(kernel_repo_path=repository)
    assert again.summary["totals"]["compile_requests"] == 0
    assert f"{compiled} programs found, 0 compiled" in again.err
    assert again.context.read_bytes() == content
    last = generate(kernel_repo_path=repository, invalidate_kernel_repo=True)
    assert last.summary["totals"]["compile_requests"] == compiled

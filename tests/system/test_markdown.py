import pytest

from robust_diffusion.system.markdown import aligned


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("<script>x</script>", "&lt;script>x&lt;/script>"),
        ("\x1b[2Jname\x07", "[2Jname"),
        ("\x9b31mname", "31mname"),
        ("a|b", "a\\|b"),
        ("p < 0.05", "p < 0.05"),
        ("<1e-4", "<1e-4"),
    ],
)
def test_a_cell_is_shown_as_plain_text(cell: str, shown: str) -> None:
    assert aligned(["name"], [[cell]], left=[0])[2] == f"| {shown} |"

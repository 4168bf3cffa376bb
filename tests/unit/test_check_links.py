"""The checker of links finds dead links and nothing else."""

from pathlib import Path

import pytest

from tools import check_links


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a page, and a folder that pages may name."""
    monkeypatch.setattr(check_links, "ROOT", tmp_path)
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "rbac.yaml").touch()
    (tmp_path / "other.md").write_text("# Two words\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        ("[a](other.md)", []),
        ("[a](other.md#two-words)", []),
        ("[a](deploy)", []),
        ("[a](https://elsewhere.example/x)", []),
        ("[a](missing.md)", ["missing.md"]),
        ("[a](other.md#three-words)", ["other.md#three-words"]),
        ("[a](#here)", ["#here"]),
        ("# Here\n\n[a](#here)", []),
        ("[a](../outside.md)", ["../outside.md"]),
    ],
)
def test_links(repository: Path, text: str, dead: list[str]) -> None:
    path = repository / "page.md"
    path.write_text(text)
    check_links.page.cache_clear()
    assert check_links.dead_links(path) == dead


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        ("`deploy/rbac.yaml`", []),
        ("`deploy/gone.yaml`", ["deploy/gone.yaml"]),
        ("`deploy/{a,b}.yaml`", []),
        ("`var/lib/x`", []),
        ("```\ndeploy/gone.yaml\n```", []),
    ],
)
def test_paths_in_backticks(repository: Path, text: str, dead: list[str]) -> None:
    path = repository / "page.md"
    path.write_text(text)
    check_links.page.cache_clear()
    assert check_links.dead_paths(path, {"deploy"}) == dead


def test_the_readme_links_each_page_of_the_navigation(repository: Path) -> None:
    readme, navigation = repository / "README.md", repository / "mkdocs.yml"
    readme.write_text("[a](docs/a.md#part)")
    pages = ("index.md", "a.md", "b.md", "runbooks/c.md")
    navigation.write_text("".join(f"      - Some page: {each}\n" for each in pages))
    check_links.page.cache_clear()
    assert check_links.unlisted(readme, navigation) == ["docs/b.md"]


def test_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in check_links.ROOT.glob("docs/pictures/*")}
    assert sizes.keys() == {"timeline.svg", "view.webp"}
    assert max(sizes.values()) < 60_000

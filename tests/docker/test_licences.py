"""The page of licences is what the packages' own metadata says, and nothing in the image is without a licence."""

from __future__ import annotations

from devtools import licences


def test_the_page_is_what_the_packages_say() -> None:
    assert licences.PAGE.read_text(encoding="utf-8") == licences.page()


def test_every_package_of_the_image_names_a_licence() -> None:
    unnamed = [line for line in licences.page().splitlines() if "none named" in line]
    assert unnamed == ["| cuda-toolkit | none named |"]  # it holds nothing but names of NVIDIA's packages

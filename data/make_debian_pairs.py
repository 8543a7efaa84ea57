#!/usr/bin/env python3
"""Make the (package, dependency) pairs of a Debian archive from apt's package lists.

    apt-get update
    python make_debian_pairs.py --output debian-depends.parquet

The same lists (and the same pyarrow) give the same bytes. README.md, beside this script,
says which pairs are left out and why.
"""

import argparse
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

FIELDS = ("Depends", "Pre-Depends")

# Sections whose packages do not use what they depend on: documentation, debug symbols, and
# packages that are only lists of other packages.
SECTIONS_LEFT_OUT = {"doc", "debug", "metapackages", "tasks"}

# Haskell's profiling libraries repeat their -dev packages, name by name.
NAMES_LEFT_OUT = re.compile(r"^(ghc|libghc-.*)-prof$")

# Empty packages that only lead from an old name to a new one.
TRANSITIONAL = re.compile(
    r"\b(transitional|dummy)\b.*\bpackage\b|\bpackage\b.*\b(transitional|dummy)\b|\((transitional|dummy)\)",
    re.IGNORECASE,
)

# Dependencies that say nothing of what a package does: the runtime of compiled programs, an empty
# helper of services, and the looks of generated documentation.
DEPENDENCIES_LEFT_OUT = {
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "lsb-base",
    "libjs-sphinxdoc",
    "sphinx-rtd-theme-common",
}


def read_stanzas(path):
    """Yield each stanza of a package list as a dict from field to value."""
    if path.name.endswith("_Packages"):
        text = path.read_text(encoding="utf-8")
    else:  # .lz4, .gz, .xz, ...: apt unpacks all that it writes
        command = ["/usr/lib/apt/apt-helper", "cat-file", str(path)]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode("utf-8")
    for block in text.split("\n\n"):
        stanza, field = {}, None
        for line in block.split("\n"):
            if line[:1] in (" ", "\t"):
                stanza[field] += " " + line.strip()
            elif ":" in line:
                field, value = line.split(":", 1)
                stanza[field] = value.strip()
        if stanza:
            yield stanza


def version_key(version):
    """A key that sorts versions as dpkg does ("~" before the end, letters before the rest)."""

    def rank(char):
        return -1 if char == "~" else ord(char) if char.isalpha() else ord(char) + 256

    def key(part):
        pieces = re.findall(r"(\D*)(\d*)", part)
        return tuple(((*map(rank, text), 0), int(digits or 0)) for text, digits in pieces)

    epoch, rest = version.split(":", 1) if ":" in version else ("0", version)
    upstream, revision = rest.rsplit("-", 1) if "-" in rest else (rest, "0")
    return int(epoch), key(upstream), key(revision)


def read_packages(folder):
    """Return {name: stanza} over all lists in the folder; the newest version of a name is kept."""
    paths = sorted(p for p in Path(folder).iterdir() if re.search(r"_Packages(\.\w+)?$", p.name))
    if not paths:
        raise SystemExit(f"no package lists in {folder}: run apt-get update, or give --lists")
    packages = {}
    for path in paths:
        for stanza in read_stanzas(path):
            known = packages.get(stanza["Package"])
            if known is None or version_key(stanza["Version"]) > version_key(known["Version"]):
                packages[stanza["Package"]] = stanza
    return packages


def names(field):
    """The package names of a relation field: first alternatives, without version or architecture."""
    groups = (group.split("|")[0].strip() for group in field.split(","))
    return [re.split(r"[\s(:\[<]", group, maxsplit=1)[0] for group in groups if group]


def source_of(stanza):
    return stanza.get("Source", stanza["Package"]).split(" ")[0]


def read_pairs(packages):
    """Return a frame (source, package, dependency), before the filters by count."""
    providers = defaultdict(set)
    for name, stanza in packages.items():
        for virtual in names(stanza.get("Provides", "")):
            providers[virtual].add(name)

    base = {
        name
        for name, stanza in packages.items()
        if stanza.get("Essential") == "yes" or stanza.get("Priority") == "required"
    }

    rows = set()
    for name, stanza in packages.items():
        if (
            stanza.get("Section", "").split("/")[-1] in SECTIONS_LEFT_OUT
            or NAMES_LEFT_OUT.search(name)
            or TRANSITIONAL.search(stanza.get("Description", ""))
        ):
            continue
        source = source_of(stanza)
        for dependency in names(",".join(stanza.get(field, "") for field in FIELDS)):
            real = {dependency} if dependency in packages else providers.get(dependency, set())
            if len(real) == 1:  # a virtual name that only one package provides stands for it
                (dependency,) = real
            if dependency == name or dependency in base or dependency in DEPENDENCIES_LEFT_OUT:
                continue
            if real and all(source_of(packages[r]) == source for r in real):
                continue  # built from the same source: foo -> foo-data, libfoo-dev -> libfoo1
            rows.add((source, name, dependency))
    return pd.DataFrame(sorted(rows), columns=["source", "package", "dependency"])


def filter_pairs(pairs, min_dependencies, min_packages):
    """Drop rare dependencies, short packages and same-source twins until nothing changes."""
    while True:
        size = len(pairs)
        counts = pairs.groupby("dependency")["package"].transform("size")
        pairs = pairs[counts >= min_packages]
        counts = pairs.groupby("package")["dependency"].transform("size")
        pairs = pairs[counts >= min_dependencies]
        sets = pairs.groupby(["source", "package"])["dependency"].agg(frozenset).reset_index()
        sets["other"] = sets["package"] != sets["source"]  # of twins keep the source's name, if there
        sets = sets.sort_values(["source", "other", "package"])
        kept = sets.drop_duplicates(["source", "dependency"])["package"]
        pairs = pairs[pairs["package"].isin(kept)]
        if len(pairs) == size:
            return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lists", default="/var/lib/apt/lists", help="folder of apt's package lists")
    parser.add_argument("--output", default="debian-depends.parquet", help="parquet file to write")
    parser.add_argument("--min-dependencies", type=int, default=2, help="of a package (default 2)")
    parser.add_argument("--min-packages", type=int, default=3, help="of a dependency (default 3)")
    args = parser.parse_args()

    packages = read_packages(args.lists)
    pairs = filter_pairs(read_pairs(packages), args.min_dependencies, args.min_packages)
    pairs = pairs.sort_values(["package", "dependency"])

    table = pa.table({name: pa.array(pairs[name].tolist(), pa.string()) for name in ("package", "dependency")})
    pq.write_table(table, args.output, compression="zstd", compression_level=19, use_dictionary=True)
    print(
        f"{len(packages)} packages in the lists; kept {len(pairs)} pairs of "
        f"{pairs['package'].nunique()} packages and {pairs['dependency'].nunique()} dependencies; "
        f"{Path(args.output).stat().st_size} bytes"
    )


if __name__ == "__main__":
    main()

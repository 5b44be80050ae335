"""Read WordNet's files as a graph for `dataset=custom`.

    python benchmarks/wordnet.py /usr/share/wordnet wordnet.npz

A node is a synset, an edge is a relation of any type between two synsets, the class is the
lexicographer file, and the features are the words of the gloss.
"""

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

FILES = {"n": "data.noun", "v": "data.verb", "a": "data.adj", "r": "data.adv"}


def read_wordnet(folder: Path, fewest: int = 50) -> dict[str, Any]:
    """Return the arrays of the graph; a feature is a word of at least `fewest` glosses."""
    nodes: dict[tuple[str, str], int] = {}
    labels, words, pointers = [], [], []
    for kind, file in FILES.items():
        for line in (folder / file).read_text(encoding="latin-1").splitlines():
            if line.startswith(" "):  # the licence
                continue
            entry, _, gloss = line.partition("|")
            offset, label, _, num_words, *rest = entry.split()
            node = nodes[kind, offset] = len(nodes)
            labels.append(int(label))
            words.append(set(re.findall("[a-z]+", gloss.lower())))
            first = 2 * int(num_words, 16)  # of the pointers: how many there are
            starts = range(first + 1, first + 1 + 4 * int(rest[first]), 4)
            pointers += [(node, (rest[i + 2], rest[i + 1])) for i in starts]
    # Some pointers join two words of one synset.
    edges = {(node, nodes[end]) for node, end in pointers if nodes.get(end, node) != node}
    edges |= {(end, node) for node, end in edges}
    glosses = Counter(word for row in words for word in row)
    columns = {word: i for i, word in enumerate(w for w in sorted(glosses) if glosses[w] >= fewest)}
    rows = [sorted(columns[word] for word in row & columns.keys()) for row in words]
    indices = np.concatenate(rows).astype(np.int64)
    return {
        "edge_index": np.array(sorted(edges)).T,
        "labels": np.unique(labels, return_inverse=True)[1],
        "attr_data": np.ones(len(indices), dtype=np.float32),
        "attr_indices": indices,
        "attr_indptr": np.cumsum([0, *map(len, rows)]),
        "attr_shape": [len(rows), len(columns)],
    }


if __name__ == "__main__":
    np.savez_compressed(sys.argv[2], **read_wordnet(Path(sys.argv[1])))

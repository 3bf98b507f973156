"""Small graphs of the user's schema, cut from the user's graph, on which a step is recorded (torch).

Nodes and edges are real ones: an induced sub-graph of nearby nodes, or whole graphs of a batch. So embeddings, types and ranges
stay legal, and an edge's attributes are about its ends. A pair stays with its reverse. Every sample has an isolated last node
of each type and edges that are there twice, in each relation. Sizes are distinct, of mixed residues, and different from every
width of the model, so that a recorded integer has one explanation.

`pool` reads the graph, whatever its size (`growth`, `scan`); `sizes`, `nodes` (`walk`), `graphs` and `edges` decide on a sample;
`draw` puts it together with its `values`.
"""

from autoplan.trace.sampling.draw import GraphSample, draw_samples, samples_of
from autoplan.trace.sampling.pool import Pool

__all__ = ["GraphSample", "Pool", "draw_samples", "samples_of"]

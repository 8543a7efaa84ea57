"""The sampler: the same model's exact posterior by Gibbs sampling, every sweep committed, thinned ones kept as draws.

Imports the sweep room's machinery and all below; `chain` reads like the scheme.
"""

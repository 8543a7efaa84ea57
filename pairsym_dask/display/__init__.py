"""Display: how tables, cards and charts look as HTML and SVG; no numbers are made here.

Imports nothing of the package.
"""

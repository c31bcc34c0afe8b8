"""The page of a trace, of a run or of a campaign: one HTML file to look at, which opens without a network.

Two halves, and between them a document. In Python a trace is applied again and what happens is written down as data
(`reports.document`, made by `trace_document`, or by what a command came to); in the browser the files of `browser`
show it. The document has all that is shown, so the page decides nothing. While a run goes on, `live` writes the
page of what is told of it anew, and the page loads itself again.
"""

"""A file of torch.profiler as a RecordedTrace: decoding, spans, kernel classes, enclosing operators."""

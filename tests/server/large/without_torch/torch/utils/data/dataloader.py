from typing import Generic, TypeVar

T = TypeVar("T")


class DataLoader(Generic[T]):
    """One item at a time, in order, and in this process."""

    def __init__(self, dataset, batch_size, shuffle, collate_fn, **_):
        assert batch_size == 1 and not shuffle, "only what guidellm asks by default"
        self.dataset, self.collate_fn = dataset, collate_fn

    def __iter__(self):
        return (self.collate_fn([item]) for item in self.dataset)

"""What guidellm takes of PyTorch, which installs 5 GB: a loader that goes through a data set in its own process."""
from .utils import data  # noqa: F401: guidellm says torch.utils.data


class Generator:
    """Shuffles nothing: guidellm's synthetic texts come in the order in which they are drawn."""

    def manual_seed(self, seed):
        pass

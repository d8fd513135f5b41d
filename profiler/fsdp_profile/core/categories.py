"""What bytes are for: one row for each category, and every property of it in that row.

The colours were found by search: the least distance of any two (OKLab, seen with normal, protanope, deuteranope and
tritanope eyes) is as large as the number of categories and their families allow, and each stands out on white and on a
dark page. Blue is parameters, green gradients, violet the optimizer, orange activations, red communication, grey the
rest.
"""

from typing import Final

from fsdp_profile.core.words import Word


class Group(Word):
    """Categories that people ask about together."""

    PARAMETERS = "PARAMETERS"
    GRADIENTS = "GRADIENTS"
    OPTIMIZER = "OPTIMIZER"
    ACTIVATIONS = "ACTIVATIONS"
    COMMUNICATION = "COMMUNICATION"
    OTHER = "OTHER"


class Category(Word):
    """What the bytes of an allocation are for (`_FSDPRefType` of PyTorch, spelled out)."""

    letter: str
    """Stands for the category where there is no colour: in a pipe, under NO_COLOR, in a grey screenshot."""
    colour: str
    """The same in the terminal, on every page and in every export."""
    order: int
    """Place in a stack, from the bottom: what stays comes first, so that its bands are flat."""
    group: Group
    _label: str

    def __new__(  # with defaults, so that Category("PARAM") type-checks
        cls, code: str, label: str = "", letter: str = "", colour: str = "", order: int = 0, group: Group = Group.OTHER
    ) -> "Category":
        """A member from its row."""
        member = str.__new__(cls, code)
        member._value_ = code
        member._label, member.letter, member.colour, member.order, member.group = label, letter, colour, order, group
        return member

    @property
    def label(self) -> str:
        """What people read."""
        return self._label

    PARAM = "PARAM", "parameters", "P", "#4e6be8", 0, Group.PARAMETERS
    """What this rank keeps: its shards, and what is in no unit; under DDP the whole replica."""
    UNSHARDED_PARAM = "UNSHARDED_PARAM", "gathered parameters", "U", "#86dbf5", 60, Group.PARAMETERS
    """Whole parameters for a while, in compute dtype; also the original ones before they are sharded."""
    GRAD = "GRAD", "gradients", "G", "#0c804d", 30, Group.GRADIENTS
    """Reduced gradients this rank keeps, which the optimizer reads; under DDP all of them."""
    UNSHARDED_GRAD = "UNSHARDED_GRAD", "unreduced gradients", "g", "#70c97c", 70, Group.GRADIENTS
    """Gradients of a gathered unit before they are reduced, those that wait under `no_sync` included."""
    OPTIMIZER_STATE = "OPTIMIZER_STATE", "optimizer state", "O", "#7a64b0", 20, Group.OPTIMIZER
    """Tensors in `optimizer.state`, and those of a GradScaler."""
    ACTIVATION = "ACTIVATION", "activations", "A", "#e69126", 50, Group.ACTIVATIONS
    """Allocated in forward and alive after it, or recomputed in backward by a checkpoint (`recomputed`)."""
    ALL_GATHER = "ALL_GATHER", "all-gather buffers", "L", "#d13b2b", 80, Group.COMMUNICATION
    """Buffers of all-gathers that are not the gathered parameters themselves."""
    REDUCE_SCATTER = "REDUCE_SCATTER", "reduce-scatter buffers", "R", "#d1737c", 90, Group.COMMUNICATION
    """Buffers of gradient reductions: reduce-scatter inputs and outputs, HSDP's all-reduce."""
    BUCKET = "BUCKET", "DDP buckets", "B", "#773f08", 100, Group.COMMUNICATION
    """DDP's gradient buckets that are not the gradients themselves, and what communication hooks allocate."""
    WORKSPACE = "WORKSPACE", "workspaces", "W", "#546084", 15, Group.OTHER
    """Scratch memory of cuBLAS, cuBLASLt and cuDNN that was allocated through the caching allocator."""
    BUFFER = "BUFFER", "module buffers", "F", "#46a0a0", 10, Group.PARAMETERS
    """Buffers of modules."""
    INPUT = "INPUT", "inputs", "I", "#fbce4f", 40, Group.ACTIVATIONS
    """The batch: given to the model, or made between steps; tensors that the script holds at the first forward."""
    OPTIMIZER_TEMPORARY = "OPTIMIZER_TEMPORARY", "optimizer temporaries", "o", "#b58ce0", 110, Group.OPTIMIZER
    """Allocated and freed inside `optimizer.step`."""
    TEMPORARY = "TEMPORARY", "temporaries", "t", "#c1bdba", 120, Group.OTHER
    """Allocated and freed inside one phase (autograd's intermediates); copies made for a checkpoint."""
    UNKNOWN = "UNKNOWN", "unknown", "?", "#544e4d", 130, Group.OTHER
    """Not attributed. Always shown."""


CATEGORIES: Final = tuple(Category)
"""In the order of every table and legend."""
STACK_ORDER: Final = tuple(sorted(Category, key=lambda category: category.order))
"""Bottom to top of a stack."""
FORMER_CODES: Final = {"SHARDED_PARAM": Category.PARAM, "SHARDED_GRAD": Category.GRAD}
"""Codes of runs written with schema 1."""

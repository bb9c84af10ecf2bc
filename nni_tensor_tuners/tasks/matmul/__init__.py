"""Matrix multiplication, one or a batch of them."""

from .definition import LAYOUTS, BatchMatmul, Matmul

OPERATORS = {"matmul": Matmul, "batch_matmul": BatchMatmul}

WORKLOADS = {
    # From BERT: OpEvo appendix B.1.
    "mm1": Matmul(512, 1024, 1024),
    "mm2": Matmul(512, 1024, 4096),
    "mm3": Matmul(512, 4096, 1024),
    # From BERT: OpEvo appendix B.2. In the third, X of (128, 64) "is transposed first and then right multiplies" Y of
    # (128, 64), which is read as Y X^T: (128, 64) (64, 128), the product of queries and keys. So do the authors' own files
    # (B960N128K64M128, layout NT). The operand that comes first in the product is our X.
    "bmm1": BatchMatmul(128, 128, 64, "NN", 960),
    "bmm2": BatchMatmul(128, 128, 64, "TN", 960),
    "bmm3": BatchMatmul(128, 64, 128, "NT", 960),
}

__all__ = ["LAYOUTS", "OPERATORS", "WORKLOADS", "BatchMatmul", "Matmul"]

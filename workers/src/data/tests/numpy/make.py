"""Writes the files beside it, as people write theirs."""

import numpy as np

x = np.arange(8, dtype="float32").reshape(4, 2) / 2
label = np.array([2, 0, 1, 2])
np.savez("plain.npz", x=x, label=label, mask=x > 1, other=np.array(["a", None], dtype=object))
np.savez_compressed("packed.npz", x=x, label=label, mask=x > 1)
np.save("x.npy", x)
np.save("label.npy", label.astype("uint8"))
np.savez(
    "refused.npz",
    fortran=np.asfortranarray(x),
    objects=np.array([1, None], dtype=object),
    big=x.astype(">f4"),
    fields=np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]),
    texts=np.array(["setosa", "virginica"]),
    complex=x.astype("complex64"),
    times=np.array(["2026-01-01"], dtype="M8[D]"),
    long=x.astype("longdouble"),
    nothing=np.zeros((0, 3)),
    number=np.float32(1),
)

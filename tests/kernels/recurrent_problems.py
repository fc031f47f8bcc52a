"""List difficult recurrent problems: odd and prime sizes, one element, every cell with each of its options."""

from gputune.kernels.chain import Chain, Step
from gputune.kernels.indexing.cells import RecurrentProblem

SIGMOID, SOFTPLUS, TANH, RELU = (Chain((Step(name),)) for name in ("sigmoid", "softplus", "tanh", "relu"))
CLIPPED = Chain((Step("clip", (-0.4, 0.4)), Step("tanh")))
SCALED = Chain((Step("mul", (0.7,)), Step("tanh"), Step("mul", (1.3,))))
LSTM, GRU = (SIGMOID, TANH, TANH), (SIGMOID, TANH)
ALL = ("Y", "Y_h", "Y_c")

RECURRENT = {
    "rnn": RecurrentProblem("RNN", 5, 3, 7, "forward", (TANH,), ("Y", "Y_h"), initial_h=True),
    "rnn-reverse": RecurrentProblem("RNN", 4, 2, 16, "reverse", (RELU,), ("Y",), lengths=True),
    "rnn-both-differ": RecurrentProblem("RNN", 3, 1, 5, "bidirectional", (TANH, CLIPPED), ("Y", "Y_h")),
    "gru": RecurrentProblem("GRU", 5, 2, 13, "forward", GRU, ("Y", "Y_h"), initial_h=True),
    "gru-last": RecurrentProblem("GRU", 6, 3, 8, "bidirectional", (*GRU, SIGMOID, SCALED), ("Y_h",), lengths=True),
    "gru-after-reset": RecurrentProblem(
        "GRU", 4, 5, 17, "bidirectional", GRU * 2, ("Y", "Y_h"), after_reset=True, initial_h=True, batch_first=True
    ),
    "lstm": RecurrentProblem("LSTM", 7, 1, 32, "forward", LSTM, ALL, initial_h=True, initial_c=True),
    "lstm-one": RecurrentProblem("LSTM", 1, 1, 1, "reverse", LSTM, ("Y",)),
    "lstm-last": RecurrentProblem("LSTM", 3, 2, 6, "forward", LSTM, ("Y_c",), initial_c=True),
    "lstm-peepholes": RecurrentProblem(
        "LSTM", 4, 3, 19, "bidirectional", (*LSTM, CLIPPED, SCALED, RELU), ALL, lengths=True, peepholes=True
    ),
    "lstm-coupled": RecurrentProblem(
        "LSTM", 5, 5, 33, "bidirectional", LSTM * 2, ("Y", "Y_c"), initial_h=True, lengths=True, coupled=True,
        peepholes=True, batch_first=True,
    ),
    "lstm-whole": RecurrentProblem("LSTM", 3, 2, 300, "forward", LSTM, ALL, initial_h=True, whole=True),
    "lstm-whole-batch": RecurrentProblem(
        "LSTM", 4, 7, 13, "bidirectional", (SIGMOID, SOFTPLUS, TANH) * 2, ALL, initial_h=True, initial_c=True,
        peepholes=True, coupled=True, batch_first=True, whole=True,
    ),
    "lstm-bytes": RecurrentProblem("LSTM", 3, 2, 300, "forward", LSTM, ALL, initial_h=True, whole=True, bytes=True),
    "lstm-bytes-batch": RecurrentProblem(
        "LSTM", 4, 5, 37, "bidirectional", LSTM * 2, ALL, batch_first=True, whole=True, bytes=True,
    ),
}  # fmt: skip

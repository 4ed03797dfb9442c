"""When the things of a load begin, whatever became of those before them. Data only."""

import msgspec


class Arrivals(msgspec.Struct, frozen=True, omit_defaults=True):
    """An open loop, or a closed one of workloads (in_flight, waves). Rates are per second."""

    shape: str  # rate, poisson, burst, ramp, steps, trace, in_flight, waves
    rate: float = 0.0  # of a ramp the first one
    to_rate: float = 0.0  # of a ramp the last one
    burst: int = 0  # so many at once, or in flight
    every_s: float = 0.0  # between bursts, or waves; of a ramp, how long it takes; of steps, how long each takes
    rates: tuple[float, ...] = ()  # of steps
    times: tuple[float, ...] = ()  # of a trace

    @property
    def peak(self) -> float | None:
        """The highest rate that is offered; None where that is no rate: all at once, or as fast as it goes."""
        return max((self.rate, self.to_rate, *self.rates)) or None

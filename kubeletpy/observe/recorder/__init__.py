"""The flight recorder: inputs and outputs of decisions on disk, and their replay.

Three pure functions decide what happens to a pod: the workers' state machine, the plan of a sync,
and the composition of a status. The recorder keeps their inputs and outputs, with the spans between
them; a replay gives the same inputs to the same functions, of whichever version runs it, and
compares. Nothing depends on this component, and it must never change what happens.
"""

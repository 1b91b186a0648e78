"""An AWS to test against: moto's models, made as strict as the real thing where moto is friendlier.

Each module corrects one service. What takes time on AWS takes time here too: `clock.PACE` seconds for each transition,
which a test may set to an hour, to look at what lies between, and then to nothing. Nothing happens behind the back of
a caller: `advance` is called before each request, and moves on whatever is due.
"""

"""What EC2 has to sell: instance types that have run out, prices, and how much the account may have."""

# Dollars an hour, unless a test says otherwise.
PRICE = 0.04


class Market:
    """What a test set it to: everything is to be had, at one price, and as much as one likes."""

    def __init__(self):
        self.set()

    def set(self, exhausted=(), prices=None, instances=None, fleets=None):
        """`exhausted` and `prices` go by instance type; `instances` and `fleets` limit how many the account has."""
        self.exhausted, self.prices = set(exhausted), prices or {}
        self.instances, self.fleets = instances, fleets

    def price(self, instance_type):
        return float(self.prices.get(instance_type, PRICE))


MARKET = Market()

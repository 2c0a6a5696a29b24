"""Property tests here have no deadline: machines that run several things at once are slow now and then."""

from hypothesis import settings

settings.register_profile("simulate", deadline=None)
settings.load_profile("simulate")

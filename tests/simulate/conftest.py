"""Property tests here have no deadline, since busy machines are slow now and then."""

from hypothesis import settings

settings.register_profile("simulate", deadline=None)
settings.load_profile("simulate")

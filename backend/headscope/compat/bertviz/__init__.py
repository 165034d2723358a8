"""The functions of BertViz, with its arguments."""

from . import neuron_view as neuron_view
from .views import head_view as head_view
from .views import model_view as model_view

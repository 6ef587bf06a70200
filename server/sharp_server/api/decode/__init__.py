"""From bytes of the wire to arrays and labels: tensors, encoded images, labels.

Everything that comes from outside is checked here before anybody else sees it. It must never trust a size that was
announced, and never look at a learner. Use `InputDecoder`, `labels_of` and `label_of`.
"""

from sharp_server.api.decode.decoder import InputDecoder
from sharp_server.api.decode.labels import label_of, labels_of

__all__ = ["InputDecoder", "label_of", "labels_of"]

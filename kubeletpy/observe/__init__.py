"""Why the node is as it is: explanations, predictions, recordings and the page that shows them."""

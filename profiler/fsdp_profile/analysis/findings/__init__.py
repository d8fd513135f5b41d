"""What a run says about itself in plain words."""

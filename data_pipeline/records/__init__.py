"""TFRecord files: records, their index, and positioned reads."""

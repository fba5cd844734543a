"""Where events come from and who carries decisions out."""

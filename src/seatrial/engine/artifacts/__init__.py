"""What jobs wrote, read after the fact: at an address that they wrote to, or in a folder that exists already."""
